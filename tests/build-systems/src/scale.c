#include "kernels.h"
#include <omp.h>
int scale(int count, int by, int *values) {
  int on_host = 1;
#pragma omp target map(tofrom : values[0 : count], on_host)
  {
    on_host = omp_is_initial_device();
    for (int i = 0; i < count; i++)
      values[i] *= by;
  }
  return on_host;
}
