//! flags: -O1
//! link: main.c other.c
//! expect: device 1
//! expect: here 11 there 102
// Internal functions and data with the same names in two translation units stay separate on the device.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
static int state = 10;
__attribute__((noinline)) static int step(void) { return state += 1; }
#pragma omp end declare target

int there(void);

int main(void) {
  int host = 1, here = 0;
#pragma omp target map(from : host, here)
  {
    host = omp_is_initial_device();
    here = step();
  }
  printf("device %d\nhere %d there %d\n", !host, here, there());
  return 0;
}
