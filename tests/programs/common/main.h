// The main function of programs that differ only in their links. It calls FUNCTION with ARGUMENT in a target region. It prints
// whether the region ran on a device, and the result. The program that includes this header defines both macros.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int FUNCTION(int x);
#pragma omp end declare target

int main(void) {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = FUNCTION(ARGUMENT);
  }
  printf("device %d\n%d\n", !host, out);
  return 0;
}
