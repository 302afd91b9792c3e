//! flags: -O1
//! static libparts.a: asked.c ignored.c
//! link: main.c -L. -lparts -Wl,-u,asked -Wl,-Map,program.map -Wl,--defsym,marker=1 -Wl,--emit-relocs
//! linkers: bfd lld
//! expect: asked: device 1
//! expect: main 12
// An option asks for a symbol, which pulls a member. The member runs its own region before main does.
#include <stdio.h>

int main(void) {
  int x = 4;
#pragma omp target map(tofrom : x)
  x *= 3;
  printf("main %d\n", x);
  return 0;
}
