//! shared libpart.so: part.c
//! plain: main.c program
//! link: main.c -L. -lpart -Wl,-rpath,$ORIGIN
//! linkers: bfd lld
//! expect: device 1
//! expect: from the library 25
// Only the shared library has device code. The program's link has no OpenMP options.
#include <stdio.h>

int square(int x, int *host);

int main(void) {
  int host = 1, out = square(5, &host);
  printf("device %d\nfrom the library %d\n", !host, out);
  return 0;
}
