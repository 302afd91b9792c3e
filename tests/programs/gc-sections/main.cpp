//! flags: -O2
//! cflags: -ffunction-sections -fdata-sections
//! static libparts.a: parts.cpp
//! link: main.cpp -L. -lparts -Wl,--gc-sections
//! linkers: bfd lld
//! reference lld: fails (undefined __start_llvm_offload_entries: the wrapper object keeps nothing alive)
//! expect: device 1
//! expect: 12 of 1
// The host link drops unused sections. Images, tables and registration must stay, although nothing refers to them.
#include <cstdio>
#include <omp.h>

#pragma omp begin declare target
int part(int x);
int count;
#pragma omp end declare target

int dead() {
  int x = 0;
#pragma omp target map(from : x)
  x = part(1);
  return x;
}

int main() {
  int host = 1, out = 0, n = 0;
#pragma omp target map(from : host, out, n)
  {
    host = omp_is_initial_device();
    out = part(6);
    n = ++count;
  }
  std::printf("device %d\n%d of %d\n", !host, out, n);
}
