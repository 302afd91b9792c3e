//! expect: device 1
//! expect: to 7 from 14 tofrom 107 alloc 49
// Each map type of a scalar, and the direction of its copies.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, to = 7, from = -1, both = 100, scratch = 5, seen = 0;
#pragma omp target map(to : to) map(from : host, from, seen) map(tofrom : both) map(alloc : scratch)
  {
    host = omp_is_initial_device();
    from = 2 * to;
    both += to;
    scratch = to * to;
    seen = scratch;
    to = 0; /* not copied back */
  }
  printf("device %d\n", !host);
  printf("to %d from %d tofrom %d alloc %d\n", to, from, both, seen);
  return 0;
}
