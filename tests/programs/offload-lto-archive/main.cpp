//! flags: -O2 -foffload-lto
//! cflags half.cpp: -fno-offload-lto
//! static libparts.a: part.cpp half.cpp
//! link: main.cpp -L. -lparts
//! expect: device 1
//! expect: 58
// Bitcode in an archive, next to a member whose device code is machine code.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
int part(int x);
#pragma omp end declare target

int half(int x);

int main() {
  int host = 1, sum = 0;
#pragma omp target map(from : host) map(tofrom : sum)
  {
    host = omp_is_initial_device();
    for (int i = 0; i <= 10; ++i)
      sum += part(i);
  }
  std::printf("device %d\n%d\n", !host, sum + half(6));
}
