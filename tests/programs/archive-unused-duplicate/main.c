//! flags: -O1
//! static libparts.a: used.c unused.c
//! link: main.c -L. -lparts
//! reference: fails (an unused member's device symbols collide with the program's)
//! expect: device 1
//! expect: 49
// The program defines what an archive member defines too. The host link never pulls that member; nor may the device link.
#define FUNCTION used
#define ARGUMENT 40
#include "../common/main.h"

#pragma omp begin declare target
int nine(void) { return 9; }
#pragma omp end declare target
