//! flags: -O1
//! static libparts.a: used.c unused.c
//! link: main.c -L. -lparts
//! reference: fails (an unused member's device symbols collide with the program's)
//! expect: device 1
//! expect: 49
// The program and an archive member define the same symbol. The host link never pulls that member, so the device link must not either.
#define FUNCTION used
#define ARGUMENT 40
#include "../common/main.h"

#pragma omp begin declare target
int nine(void) { return 9; }
#pragma omp end declare target
