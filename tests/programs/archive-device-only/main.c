//! flags: -O1
//! static libparts.a: only.c
//! link: main.c -L. -lparts
//! expect: device 1
//! expect: device 70 host 7
// A library with a function for the device only: no host symbol leads to its member, but device code needs it.
#include <omp.h>
#include <stdio.h>

int there(int x);
#pragma omp declare target to(there) device_type(nohost)
#pragma omp declare variant(there) match(device = {kind(nohost)})
int where(int x) { return x; }
#pragma omp declare target to(where)

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = where(7);
  }
  printf("device %d\ndevice %d host %d\n", !host, out, where(7));
  return 0;
}
