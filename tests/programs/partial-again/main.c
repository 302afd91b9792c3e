//! flags: -O1
//! partial one.o: left.c
//! partial both.o: one.o right.c
//! plain: main.c program
//! link: main.c both.o -fopenmp -lomptarget
//! reference: fails (the second partial link links the first one's image again)
//! expect: 25 and 50
// A partial link of another partial link's output: the existing registration does not change.
#include <stdio.h>

int left(int x);
int right(int x);

int main(void) {
  printf("%d and %d\n", left(5), right(5));
  return 0;
}
