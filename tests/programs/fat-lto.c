//! flags: -O2
//! cflags: -flto -ffat-lto-objects
//! linkers: bfd lld
//! expect: device 1
//! expect: 120
// Objects with both machine code and bitcode of the host, linked as machine code.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, product = 1;
#pragma omp target map(from : host) map(tofrom : product)
  {
    host = omp_is_initial_device();
    for (int i = 1; i <= 5; ++i)
      product *= i;
  }
  printf("device %d\n%d\n", !host, product);
  return 0;
}
