//! flags: -O1
//! static libone.a: one.c
//! static libtwo.a: two.c
//! link: main.c -L. -Wl,--start-group -lone -ltwo -Wl,--end-group
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// Archives that need each other, in a group.
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
