//! static libempty.a:
//! static libhost.a: host.c
//! plain: host.c
//! link: main.c libempty.a libhost.a
//! linkers: bfd lld
//! expect: device 1
//! expect: 5
// Archives without device code: one without members, and one with plain members.
#include <omp.h>
#include <stdio.h>

int plain_function(void);

int main(void) {
  int host = 1, out = plain_function();
#pragma omp target map(from : host) map(tofrom : out)
  {
    host = omp_is_initial_device();
    out += 1;
  }
  printf("device %d\n%d\n", !host, out);
  return 0;
}
