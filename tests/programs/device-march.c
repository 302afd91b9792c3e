//! flags: -O2 -Xopenmp-target -march=x86-64-v2
//! expect: device 1
//! expect: bits 16
// Device code for a specific CPU: the image has an architecture, and the device link gets it as an option.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, bits = 0;
  unsigned long long x = 0x0f0f0f0fUL;
#pragma omp target map(from : host, bits) map(to : x)
  {
    host = omp_is_initial_device();
    bits = __builtin_popcountll(x);
  }
  printf("device %d\nbits %d\n", !host, bits);
  return 0;
}
