//! flags: -O2 -fvisibility=hidden -fvisibility-inlines-hidden
//! link: main.cpp part.cpp
//! linkers: bfd lld
//! expect: device 1
//! expect: 42 of 2
// Hidden visibility for everything: the runtime still finds kernels and global variables by name in the image.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
extern int used;
int part(int x);
#pragma omp end declare target

int main() {
  int host = 1, out = 0, calls = 0;
#pragma omp target map(from : host, out, calls)
  {
    host = omp_is_initial_device();
    out = part(20) + part(20);
    calls = used;
  }
  std::printf("device %d\n%d of %d\n", !host, out, calls);
}
