//! flags: -O1
//! expect: device 1
//! expect: sum 1996 big[2] 3
// `link`: the device has only a pointer, which a map clause sets. Its entry has the link flag.
#include <omp.h>
#include <stdio.h>

enum { N = 1000 };
int big[N];
#pragma omp declare target link(big)

int main(void) {
  int host = 1, sum = 0;
  for (int i = 0; i < N; ++i)
    big[i] = 1;
#pragma omp target map(tofrom : big) map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 2; i < N; ++i) {
      sum += 2 * big[i];
      big[i] = 3;
    }
  }
  printf("device %d\n", !host);
  printf("sum %d big[2] %d\n", sum, big[2]);
  return 0;
}
