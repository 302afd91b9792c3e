#include <omp.h>

int top(int *host) {
  int h = 1, out = 10;
#pragma omp target map(from : h) map(tofrom : out)
  {
    h = omp_is_initial_device();
    out += 1000;
  }
  *host = h;
  return out;
}
