//! flags: -O2
//! shared libpart.so: part.c -Wl,-soname,libpart.so.1 -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,nodelete
//! shared libpart.so.1: part.c -Wl,-soname,libpart.so.1 -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,nodelete
//! link: main.c libpart.so -Wl,-rpath,$ORIGIN -Wl,-z,now
//! linkers: bfd lld
//! expect: device 1
//! expect: from the library 25
// A library with a soname and -Bsymbolic, linked by its path.
#include <stdio.h>

int square(int x, int *host);

int main(void) {
  int host = 1, out = square(5, &host);
  printf("device %d\nfrom the library %d\n", !host, out);
  return 0;
}
