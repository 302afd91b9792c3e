//! flags: -O3
//! expect: device 1
//! expect: trace 147 corner 21
// Collapsed loops whose bounds are known only at run time.
#include <omp.h>
#include <stdio.h>

enum { N = 8 };

int main(int argc, char **argv) {
  (void)argv;
  int host = 1, n = N * argc, a[N][N], b[N][N], c[N][N] = {{0}};
  for (int i = 0; i < N * N; ++i)
    a[i / N][i % N] = i / N + i % N, b[i / N][i % N] = 2 * (i / N == i % N);
  b[0][N - 1] = 5;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for collapse(3) map(to : a, b) map(tofrom : c)
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) {
#pragma omp atomic
        c[i][j] += a[i][k] * b[k][j];
      }
  int trace = 0;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j)
      trace += (i == j) * c[i][j];
  printf("device %d\ntrace %d corner %d\n", !host, trace, c[1][N - 1]);
  return 0;
}
