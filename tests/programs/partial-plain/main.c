//! flags: -O1
//! partial one.o: left.c
//! partial two.o: right.c
//! plain: main.c program
//! linkers: bfd lld
//! link: main.c one.o two.o -fopenmp -lomptarget
//! expect: 25 and 50
// Two partial links, then a link without offloading: each part registers its own table.
#include <stdio.h>

int left(int x);
int right(int x);

int main(void) {
  printf("%d and %d\n", left(5), right(5));
  return 0;
}
