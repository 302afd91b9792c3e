//! flags: -O1
//! static libparts.a: used.c unused.c
//! link: main.c -L. -lparts
//! reference: fails (an unused member's undefined device symbol fails the device link)
//! expect: device 1
//! expect: 49
// An archive member that the host link leaves out may need what is nowhere: its device code stays out as well.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int used(int x);
int nine(void) { return 9; }
#pragma omp end declare target

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = used(40);
  }
  printf("device %d\n%d\n", !host, out);
  return 0;
}
