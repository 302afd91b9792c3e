//! flags: -O1
//! static libparts.a: asked.c ignored.c
//! link: main.c -L. -lparts -Wl,-u,asked -Wl,-Map,program.map -Wl,--defsym,marker=1 -Wl,--emit-relocs
//! linkers: bfd lld
//! expect: asked: device 1
//! expect: main 12
// A member is pulled because an option asks for its symbol; it then runs a region of its own before main does.
#include <stdio.h>

int main(void) {
  int x = 4;
#pragma omp target map(tofrom : x)
  x *= 3;
  printf("main %d\n", x);
  return 0;
}
