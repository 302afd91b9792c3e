//! flags: -O2
//! expect: device 1
//! expect: chain 2310
// Regions as tasks with nowait, ordered by depend. The program waits for them at the end.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, a = 2, b = 0, c = 0;
#pragma omp parallel
#pragma omp single
  {
#pragma omp target nowait depend(inout : a) map(tofrom : a) map(from : host)
    {
      host = omp_is_initial_device();
      a *= 3;
    }
#pragma omp target nowait depend(in : a) depend(out : b) map(to : a) map(from : b)
    b = a * 5;
#pragma omp target nowait depend(in : b) depend(out : c) map(to : b) map(from : c)
    c = b * 7;
#pragma omp task depend(inout : c)
    c *= 11;
#pragma omp taskwait
  }
  printf("device %d\nchain %d\n", !host, c);
  return 0;
}
