//! flags: -O1
//! partial kernels.o: kernel.c
//! link: main.c kernels.o
//! linkers: bfd lld
//! reference: fails (links the image of the partial link once more, from files that are gone)
//! expect: device 1
//! expect: 24 and 25
// A partial link through the wrapper registers its images itself. The final link adds its own and leaves those unchanged.
#include <omp.h>
#include <stdio.h>

int kernel(int x);

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = 24;
  }
  printf("device %d\n%d and %d\n", !host, out, kernel(5));
  return 0;
}
