//! flags: -O2 -std=c++20
//! expect: device 1
//! expect: 3 5 7 9
// A lambda with captures, called in a region of a template that is instantiated for each lambda type.
#include <cstdio>
#include <omp.h>

template <class F> int for_each(int n, int *a, F f) {
  int host = 1;
#pragma omp target map(tofrom : a[0 : n]) map(from : host) map(to : f)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < n; ++i)
      a[i] = f(a[i]);
  }
  return host;
}

int main() {
  int a[] = {1, 2, 3, 4}, factor = 2, plus = 1;
  int host = for_each(4, a, [factor](int x) { return factor * x; });
  host |= for_each(4, a, [=](int x) { return x + plus; });
  std::printf("device %d\n%d %d %d %d\n", !host, a[0], a[1], a[2], a[3]);
}
