//! flags: -O2 -fPIC -fstack-protector-strong
//! link: hardened.c -pie -Wl,-z,now -Wl,-z,relro -Wl,-z,separate-code -Wl,--build-id -rdynamic
//! linkers: bfd lld
//! expect: device 1
//! expect: answer 42
// Hardened as in distributions: everything is read-only after relocation, including images and tables.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, answer = 21;
#pragma omp target map(from : host) map(tofrom : answer)
  {
    host = omp_is_initial_device();
    answer *= 2;
  }
  printf("device %d\nanswer %d\n", !host, answer);
  return 0;
}
