//! expect: from the device: 6 times 7 is 42
//! expect: device 1
// Output from the device.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1;
#pragma omp target map(from : host)
  {
    host = omp_is_initial_device();
    printf("from the device: %d times %d is %d\n", 6, 7, 6 * 7);
  }
  printf("device %d\n", !host);
  return 0;
}
