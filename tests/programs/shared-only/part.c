#include <omp.h>

int square(int x, int *host) {
  int h = 1;
#pragma omp target map(tofrom : x) map(from : h)
  {
    h = omp_is_initial_device();
    x *= x;
  }
  *host = h;
  return x;
}
