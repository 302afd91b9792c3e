//! flags: -O1
//! cflags: -fPIC
//! static libinner.a: inner.c unused.c
//! shared libouter.so: outer.c -L. -linner
//! plain: main.c
//! link: main.c -L. -louter -Wl,-rpath,$ORIGIN
//! linkers: bfd lld
//! expect: device 1
//! expect: 33
// A shared library from an object and an archive: its image includes the archive's code.
#include <stdio.h>

int outer(int x, int *host);

int main(void) {
  int host = 1, out = outer(11, &host);
  printf("device %d\n%d\n", !host, out);
  return 0;
}
