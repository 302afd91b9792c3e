//! flags: -O2 -s
//! linkers: bfd lld
//! expect: device 1
//! expect: answer 42
// A stripped program: images and entries are data that the program needs, not symbols.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, answer = 0;
#pragma omp target map(from : host, answer)
  {
    host = omp_is_initial_device();
    answer = 42;
  }
  printf("device %d\nanswer %d\n", !host, answer);
  return 0;
}
