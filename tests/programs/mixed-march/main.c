//! flags: -O2
//! cflags part.c: -Xopenmp-target -march=x86-64-v2
//! link: main.c part.c
//! reference: fails (a generic object before a more specific one is left out of that one's image)
//! expect: device 1
//! expect: 42
// Generic device code and code for a named processor make one image: the generic object serves the more specific group.
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
