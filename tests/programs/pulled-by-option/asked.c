#include <omp.h>
#include <stdio.h>

int asked;

__attribute__((constructor)) static void first(void) {
  int host = 1;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
  printf("asked: device %d\n", !host);
}
