//! flags: -O1
//! static libone.a: one.c
//! static libtwo.a: two.c
//! link: main.c -L. -lone -ltwo -lone
//! reference: fails (an archive named twice is linked twice on the device: multiple definition)
//! expect: device 1
//! expect: 24
// Libraries that need each other, named twice, as every traditional link line has them.
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
