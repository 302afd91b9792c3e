//! flags: -O2 -fopenmp-offload-mandatory --offload-jobs=2
//! expect: device 1
//! expect: cubes 3025
// No code for a host fallback: without a registered image, the region cannot run.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, sum = 0;
#pragma omp target map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 1; i <= 10; ++i)
      sum += i * i * i;
  }
  printf("device %d\ncubes %d\n", !host, sum);
  return 0;
}
