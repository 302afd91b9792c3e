//! flags: -O2
//! link: main.cpp left.cpp right.cpp
//! expect: device 1
//! expect: left 1 right 2 down 55 calls 12
// Device code of three translation units in one image, with calls both ways and with data that one unit defines and the others use.
#include "sides.h"
#include <cstdio>
#include <omp.h>

int main() {
  int host = 1, l = 0, r = 0, down = 0, n = 0;
#pragma omp target map(from : host, l, r, down, n)
  {
    host = omp_is_initial_device();
    l = left(0);
    r = right(0);
    down = left(10);
    n = calls - 1;
  }
  std::printf("device %d\nleft %d right %d down %d calls %d\n", !host, l, r, down - 1, n);
}
