// A point of heat spreads over a grid for a few steps; then the library smooths it. All values are integers, checked against the host.
#include "grid.h"
#include <cstdio>
#include <omp.h>
#include <vector>

static int wrong;
static void check(const char *what, long is, long should) {
  std::printf("%-12s %ld%s\n", what, is, is == should ? "" : "  WRONG");
  wrong += is != should;
}

int main() {
  std::vector<int> grid(side * side), next(side * side), expected(side * side);
  grid[32 * side + 32] = expected[32 * side + 32] = 1;

  hot = 100; // on the host; the next line copies it to the device
#pragma omp target update to(hot)
  for (int i = 0; i < 4; ++i) {
    step(grid.data(), next.data());
    grid.swap(next);

    std::vector<int> last = expected;
    for (int c = 0; c < side * side; ++c)
      expected[c] = clamp_to_hot(neighbours(last.data(), c / side, c % side));
  }
  int host = 1;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target update from(steps_done)

  long expected_sum = 0;
  for (int v : expected)
    expected_sum += v;
  check("on the host", host, 0);
  check("equal", grid == expected, 1);
  check("sum", sum(grid.data()), expected_sum);
  check("steps", steps_done, 4);
  check("smoothings", smooth(grid.data()) + smooth(grid.data()), 3);
  check("smoothed", grid[32 * side + 32], (expected[32 * side + 32] / 2) / 2);
  std::puts(wrong ? "wrong" : "right");
  return wrong != 0;
}
