//! flags: -O2
//! expect: nothing to offload, 55
// Compiled for offloading, but without a region: the image is empty, and the program runs.
#include <stdio.h>

int main(void) {
  int sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 1; i <= 10; ++i)
    sum += i;
  printf("nothing to offload, %d\n", sum);
  return 0;
}
