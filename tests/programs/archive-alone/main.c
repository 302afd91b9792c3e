//! flags: -O2
//! static libpart.a: top.c unused.c
//! plain: main.c
//! link: main.c -L. -lpart
//! linkers: bfd lld
//! reference: fails (takes nothing from an archive when no object outside one has device code)
//! expect: device 1
//! expect: 1010
// Only an archive has device code. The program itself was compiled without offloading, as if it were in another language.
#include <stdio.h>

int top(int *host);

int main(void) {
  int host = 1, out = top(&host);
  printf("device %d\n%d\n", !host, out);
  return 0;
}
