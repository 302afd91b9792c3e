#include "grid.h"

#pragma omp begin declare target
int hot = 1000;
long steps_done = 0;

int neighbours(const int *grid, int row, int column) {
  int total = 0;
  for (int r = row - 1; r <= row + 1; ++r)
    for (int c = column - 1; c <= column + 1; ++c)
      if (r >= 0 && r < side && c >= 0 && c < side)
        total += grid[r * side + c];
  return total;
}
#pragma omp end declare target
