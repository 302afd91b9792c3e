//! flags: -O2
//! expect: device 1
//! expect: middle 0 0 0 6 8 10 12 0 0 0
//! expect: row 0 300 0
// Array sections: a part of an array and a row of a matrix, with their own bounds.
#include <omp.h>
#include <stdio.h>

#define N 10

int main(void) {
  int host = 1, a[N], out[N] = {0}, m[3][100];
  for (int i = 0; i < N; ++i)
    a[i] = i;
  for (int i = 0; i < 300; ++i)
    m[i / 100][i % 100] = 0;

#pragma omp target teams distribute parallel for map(to : a[3 : 4]) map(tofrom : out[3 : 4])
  for (int i = 3; i < 7; ++i)
    out[i] = 2 * a[i];

#pragma omp target map(tofrom : m[1 : 1][0 : 100]) map(from : host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 100; ++i)
      m[1][i] += 3;
  }
  int sums[3] = {0};
  for (int i = 0; i < 300; ++i)
    sums[i / 100] += m[i / 100][i % 100];
  printf("device %d\nmiddle", !host);
  for (int i = 0; i < N; ++i)
    printf(" %d", out[i]);
  printf("\nrow %d %d %d\n", sums[0], sums[1], sums[2]);
  return 0;
}
