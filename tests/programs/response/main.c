//! flags: -O1
//! static libone.a: one.c
//! response inner.rsp: two.c -L. -Wl,--start-group
//! response line.rsp: main.c @inner.rsp -lone -Wl,--end-group -Wl,-z,now
//! link: @line.rsp
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// The whole line from a response file that names another, as build systems write when it is long.
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
