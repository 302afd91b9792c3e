#include "sides.h"
#pragma omp begin declare target
int calls;
int left(int n) { return ++calls, n == 0 ? 1 : n + right(n - 1); }
#pragma omp end declare target
