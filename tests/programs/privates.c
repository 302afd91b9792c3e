//! flags: -O3
//! expect: device 1
//! expect: first 5 last 99 sum 5450
// firstprivate copies in, lastprivate copies the last iteration's value out.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int first = 5, last = -1, sum = 0, host = 1;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for firstprivate(first) lastprivate(last) reduction(+ : sum) map(tofrom : last, sum)
  for (int i = 0; i < 100; ++i) {
    last = i;
    sum += i + first;
    first = 5;
  }
  printf("device %d\n", !host);
  printf("first %d last %d sum %d\n", first, last, sum);
  return 0;
}
