//! flags: -O1
//! link: main.c -Wl,--start-lib one.c two.c unused.c -Wl,--end-lib
//! linkers: lld
//! reference: fails (takes every object between --start-lib and --end-lib, the unused one's undefined device symbol too)
//! expect: device 1
//! expect: 24
// Objects as if they were members of an archive: the host links those it needs, so does the device.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int one(int n);
#pragma omp end declare target

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = one(4);
  }
  printf("device %d\n%d\n", !host, out);
  return 0;
}
