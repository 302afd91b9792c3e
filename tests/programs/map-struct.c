//! flags: -std=c11 -pedantic
//! expect: device 1
//! expect: count 4 total 100 untouched 9
// Members of a struct mapped one by one. The member between them stays on the host.
#include <omp.h>
#include <stdio.h>

struct account {
  int count;
  double untouched;
  double values[4];
  double total;
};

int main(void) {
  struct account a = {0, 9, {10, 20, 30, 40}, 0};
  int host = 1;
#pragma omp target map(from : host) map(tofrom : a.count) map(to : a.values) map(from : a.total)
  {
    host = omp_is_initial_device();
    a.total = 0;
    for (int i = 0; i < 4; ++i, ++a.count)
      a.total += a.values[i];
  }
  printf("device %d\n", !host);
  printf("count %d total %g untouched %g\n", a.count, a.total, a.untouched);
  return 0;
}
