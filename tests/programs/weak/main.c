//! flags: -O2
//! link: main.c strong.c
//! expect: device 1
//! expect: overridden 2 kept 10 limit 99 absent 1
// Weak definitions on the device: overridden by another object's or used, and a weak reference without a definition.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
__attribute__((weak)) int overridden(void) { return 1; }
__attribute__((weak)) int kept(void) { return 10; }
__attribute__((weak)) int limit = 5;
__attribute__((weak)) int absent(void);
#pragma omp end declare target

int main(void) {
  int host = 1, a = 0, b = 0, c = 0, d = 0;
#pragma omp target map(from : host, a, b, c, d)
  {
    host = omp_is_initial_device();
    a = overridden();
    b = kept();
    c = limit;
    d = absent == 0;
  }
  printf("device %d\noverridden %d kept %d limit %d absent %d\n", !host, a, b, c, d);
  return 0;
}
