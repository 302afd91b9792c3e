//! flags: -O1
//! static libparts.a: used.c unused.c
//! link: main.c -L. -lparts
//! reference: fails (an unused member's device symbols collide with the program's)
//! expect: device 1
//! expect: 49
// The program defines what an archive member defines too. The host link never pulls that member; nor may the device link.
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
