//! flags: -O2
//! shared libpart.so: part.cpp
//! link: main.cpp -L. -lpart -Wl,-rpath,$ORIGIN
//! linkers: bfd lld
//! expect: device 1
//! expect: main 11 library 101 again 102
// A shared library and the program that uses it, each with its own image, entries and registration.
#include <cstdio>
#include <omp.h>

int part(); // a host function of the library that contains a region

#pragma omp begin declare target
static int state = 10;
static int step() { return ++state; } // part.cpp has these names, too
#pragma omp end declare target

int main() {
  int host = 1, here = 0;
#pragma omp target map(from : host, here)
  {
    host = omp_is_initial_device();
    here = step();
  }
  int first = part(), second = part();
  std::printf("device %d\nmain %d library %d again %d\n", !host, here, first, second);
}
