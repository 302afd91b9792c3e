//! flags: -O2
//! static libtop.a: top.c
//! static libmid.a: mid.c
//! static libbase.a: base.c
//! link: main.c -L. -ltop -lmid -lbase
//! linkers: bfd lld
//! expect: device 1
//! expect: 1110
// Members that need members of later libraries: the host code calls only the first, so each member pulls the next one.
#include <stdio.h>

int top(int *host);

int main(void) {
  int host = 1, out = top(&host);
  printf("device %d\n%d\n", !host, out);
  return 0;
}
