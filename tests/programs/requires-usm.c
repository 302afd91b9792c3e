//! flags: -O2
//! expect: device 1
//! expect: sum 45 on the host 46
// `requires`: a separate entry informs the runtime, and unmapped memory is then accessible.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#pragma omp requires unified_shared_memory

int main(void) {
  int host = 1, *a = malloc(10 * sizeof *a), *sum = calloc(1, sizeof *sum);
  for (int i = 0; i < 10; ++i)
    a[i] = i;
#pragma omp target map(from : host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 10; ++i)
      *sum += a[i];
  }
  printf("device %d\nsum %d", !host, *sum);
  ++*sum;
  printf(" on the host %d\n", *sum);
  free(a);
  free(sum);
  return 0;
}
