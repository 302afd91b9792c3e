// A member of libstats.a that this program does not use.
#include "../grid.h"

void histogram(const int *grid, int *counts) {
#pragma omp target map(to : grid[0 : side * side]) map(tofrom : counts[0 : 10])
  for (int i = 0; i < side * side; ++i)
    ++counts[grid[i] % 10];
}
