//! flags: -O2
//! shared libpart.so: part.cpp
//! link: main.cpp -L. -lpart -Wl,-rpath,$ORIGIN
//! expect: device 1
//! expect: 42
// Device code of the program calls a function under declare target in the shared library.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
int part(int x);
#pragma omp end declare target

int main() {
  int host = 1, out = 0;
#pragma omp target map(from : host, out)
  {
    host = omp_is_initial_device();
    out = part(40);
  }
  std::printf("device %d\n%d\n", !host, out);
}
