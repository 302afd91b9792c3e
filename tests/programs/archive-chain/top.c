#include <omp.h>
#pragma omp begin declare target
int mid(int x);
#pragma omp end declare target

int top(int *host) {
  int h = 1, out = 0;
#pragma omp target map(from : h, out)
  {
    h = omp_is_initial_device();
    out = mid(10) + 1000;
  }
  *host = h;
  return out;
}
