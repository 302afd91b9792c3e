#include "grid.h"

void step(int *grid, int *next) {
#pragma omp target teams distribute parallel for collapse(2) map(to : grid[0 : side * side]) map(from : next[0 : side * side])
  for (int r = 0; r < side; ++r)
    for (int c = 0; c < side; ++c)
      next[r * side + c] = clamp_to_hot(neighbours(grid, r, c));
#pragma omp target
  ++steps_done;
}
