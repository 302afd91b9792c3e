//! flags: -O2 -flto
//! linkers: lld
//! expect: device 1
//! expect: squares 285
// Host objects are bitcode: offld finds the images and entries inside it, and they survive the host's link-time optimization.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int square(int x) { return x * x; }
#pragma omp end declare target

int main(void) {
  int host = 1, sum = 0;
#pragma omp target map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 10; ++i)
      sum += square(i);
  }
  printf("device %d\nsquares %d\n", !host, sum);
  return 0;
}
