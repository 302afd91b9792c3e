#include "../grid.h"

long sum(const int *grid) {
  long total = 0;
#pragma omp target teams distribute parallel for reduction(+ : total) map(to : grid[0 : side * side])
  for (int i = 0; i < side * side; ++i)
    total += grid[i];
  return total;
}
