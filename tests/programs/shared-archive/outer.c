#include <omp.h>
#pragma omp begin declare target
int inner(int x);
#pragma omp end declare target

int outer(int x, int *host) {
  int h = 1;
#pragma omp target map(tofrom : x) map(from : h)
  {
    h = omp_is_initial_device();
    x = inner(x);
  }
  *host = h;
  return x;
}
