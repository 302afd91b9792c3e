//! flags: -g -O0 -gz
//! linkers: bfd lld
//! expect: device 1
//! expect: 21
// No optimization, with compressed debug information for host and device.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
template <int N> int fib() { return fib<N - 1>() + fib<N - 2>(); }
template <> int fib<1>() { return 1; }
template <> int fib<0>() { return 0; }
#pragma omp end declare target

int main() {
  int host = 1, f = 0;
#pragma omp target map(from : host, f)
  {
    host = omp_is_initial_device();
    f = fib<8>();
  }
  std::printf("device %d\n%d\n", !host, f);
}
