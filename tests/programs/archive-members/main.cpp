//! flags: -O2
//! static libparts.a: used.cpp unused.cpp data.cpp
//! link: main.cpp -L. -lparts
//! linkers: bfd lld
//! expect: device 1
//! expect: 30 of 3
// A library with members that have a function and data for device code, and with an unused member.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
extern int factor;
int used(int x);
#pragma omp end declare target

int main() {
  int host = 1, out = 0, f = 0;
#pragma omp target map(from : host, out, f)
  {
    host = omp_is_initial_device();
    out = used(10);
    f = factor;
  }
  std::printf("device %d\n%d of %d\n", !host, out, f);
}
