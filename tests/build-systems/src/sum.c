#include "kernels.h"
#include <omp.h>
int sum(int count, const int *values, int *result) {
  int on_host = 1, all = 0;
#pragma omp target map(to : values[0 : count]) map(tofrom : all, on_host)
  {
    on_host = omp_is_initial_device();
    for (int i = 0; i < count; i++)
      all += values[i];
  }
  *result = all;
  return on_host;
}
