//! flags: -O2 -foffload-lto
//! link: main.cpp part.cpp
//! linkers: bfd lld
//! expect: device 1
//! expect: 55
// Device code is bitcode, which the device link optimizes as a whole.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
int part(int x);
#pragma omp end declare target

int main() {
  int host = 1, sum = 0;
#pragma omp target map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 0; i <= 10; ++i)
      sum += part(i);
  }
  std::printf("device %d\n%d\n", !host, sum);
}
