//! flags: -O0 -std=c++17
//! link: main.cpp other.cpp third.cpp
//! linkers: bfd lld
//! expect: device 1
//! expect: 6 24 120 shared 3
// The same template, inline function and inline variable in every translation unit. One of each remains, on host and device.
#include "sum.h"
#include <cstdio>

int main() {
  int host = 1;
  int a = run(3, host), b = other(4), c = third(5), seen = 0;
#pragma omp target map(from : seen)
  seen = calls;
  std::printf("device %d\n%d %d %d shared %d\n", !host, a, b, c, seen);
}
