#include <omp.h>

double kernel(double x, int *host) {
  int h = 1;
#pragma omp target map(tofrom : x) map(from : h)
  {
    h = omp_is_initial_device();
    x += 2;
  }
  *host = h;
  return x;
}
