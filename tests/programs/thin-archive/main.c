//! flags: -O1
//! thin libparts.a: one.c two.c
//! link: main.c libparts.a
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// A thin archive contains names, not objects.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
