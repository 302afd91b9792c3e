//! flags: -O2
//! expect: device 1
//! expect: sum 499500 max 999 min 0 and 1 or 0 xor 0
//! expect: buckets 100 100 100 100 100 100 100 100 100 100
// Reductions over teams and threads, of scalars and of an array section.
#include <omp.h>
#include <stdio.h>

int main(void) {
  long sum = 0;
  int host = 1, max = -1, min = 1000, all = 1, any = 0, x = 0, buckets[10] = {0};
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for reduction(+ : sum) reduction(max : max) reduction(min : min) reduction(&& : all)  \
    reduction(|| : any) reduction(^ : x)
  for (int i = 0; i < 1000; ++i) {
    sum += i;
    max = i > max ? i : max;
    min = i < min ? i : min;
    all = all && i >= 0;
    any = any || i < 0;
    x ^= i;
  }
#pragma omp target parallel for reduction(+ : buckets[0 : 10])
  for (int i = 0; i < 1000; ++i)
    ++buckets[i % 10];
  printf("device %d\n", !host);
  printf("sum %ld max %d min %d and %d or %d xor %d\nbuckets", sum, max, min, all, any, x);
  for (int i = 0; i < 10; ++i)
    printf(" %d", buckets[i]);
  printf("\n");
  return 0;
}
