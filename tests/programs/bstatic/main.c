//! flags: -O1
//! static libpart.a: part.c
//! shared libpart.so: other.c
//! link: main.c -L. -Wl,-Bstatic -lpart -Wl,-Bdynamic
//! linkers: bfd lld
//! reference: fails (ignores -Bstatic, takes libpart.so, and the image has no part)
//! expect: device 1
//! expect: 42
// The archive and the shared library have one name; -Bstatic says which.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int part(int x);
#pragma omp end declare target

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = part(40);
  }
  printf("device %d\n%d\n", !host, out);
  return 0;
}
