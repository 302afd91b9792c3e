#include <omp.h>

#pragma omp begin declare target
int uses; // 1 after each dlopen, which initializes the library again
#pragma omp end declare target

int run(int x, int *host) {
  int h = 1, out = 0;
#pragma omp target map(from : h, out)
  {
    h = omp_is_initial_device();
    out = ++uses * x * x;
  }
  *host = h;
  return out;
}
