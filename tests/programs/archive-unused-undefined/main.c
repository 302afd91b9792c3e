//! flags: -O1
//! static libparts.a: used.c unused.c
//! link: main.c -L. -lparts
//! reference: fails (an unused member's undefined device symbol fails the device link)
//! expect: device 1
//! expect: 49
// An archive member that the host link does not pull has an undefined symbol. The device link must omit the member, too.
#define FUNCTION used
#define ARGUMENT 40
#include "../common/main.h"

#pragma omp begin declare target
int nine(void) { return 9; }
#pragma omp end declare target
