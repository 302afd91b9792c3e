#include "plugins.h"
#include <omp.h>
void tail(int *host) {
  int h = 1;
#pragma omp target map(from : h)
  h = omp_is_initial_device();
  *host = h;
}
