//! flags: -O2 -fno-pic -no-pie
//! linkers: bfd lld
//! expect: device 1
//! expect: 36
// A program at a fixed address: the registration code is position-independent, and its table needs no relocation at run time.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int weights[3] = {1, 2, 3};
#pragma omp end declare target

int main(void) {
  int host = 1, sum = 0;
#pragma omp target map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 3; ++i)
      sum += 6 * weights[i];
  }
  printf("device %d\n%d\n", !host, sum);
  return 0;
}
