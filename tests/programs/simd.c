//! flags: -O3 -ffast-math
//! expect: device 1
//! expect: dot 328350 scaled 198
// simd loops and a declare simd function: its vector variants are device symbols, too.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
#pragma omp declare simd uniform(factor) notinbranch
float scale(float x, float factor) { return x * factor; }
#pragma omp end declare target

int main(void) {
  int host = 1;
  float a[100], b[100], dot = 0;
  for (int i = 0; i < 100; ++i)
    a[i] = (float)i;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for simd reduction(+ : dot) map(to : a) map(from : b)
  for (int i = 0; i < 100; ++i) {
    b[i] = scale(a[i], 2);
    dot += a[i] * a[i];
  }
  printf("device %d\ndot %.0f scaled %.0f\n", !host, dot, b[99]);
  return 0;
}
