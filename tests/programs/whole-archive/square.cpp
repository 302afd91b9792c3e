#include "plugins.h"
static int run(int x) {
#pragma omp target map(tofrom : x)
  x = x * x;
  return x;
}
static bool added = plugins().emplace("square", run).second;
