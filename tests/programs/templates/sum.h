#pragma once
#include <omp.h>

#pragma omp begin declare target
inline int calls = 0;

template <class T> T factorial(T n) { return n < 2 ? 1 : n * factorial(n - 1); }
#pragma omp end declare target

inline int run(int n, int &host) {
  int out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    ++calls;
    out = factorial(n);
  }
  return out;
}

int other(int n);
int third(int n);
