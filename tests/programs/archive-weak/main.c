//! flags: -O1
//! static libparts.a: part.c
//! link: main.c -L. -lparts
//! linkers: bfd lld
//! reference: fails (takes the member on the device)
//! expect: device 1
//! expect: host 1 device 1
// A weak reference pulls no member. The device link omits the members that the host link omits.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
__attribute__((weak)) int part(void);
#pragma omp end declare target

int main(void) {
  int host = 1, absent = 0;
#pragma omp target map(from : host, absent)
  {
    host = omp_is_initial_device();
    absent = part == 0;
  }
  printf("device %d\nhost %d device %d\n", !host, part == 0, absent);
  return 0;
}
