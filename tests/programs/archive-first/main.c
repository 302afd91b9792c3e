//! flags: -O1
//! static libparts.a: one.c two.c
//! link: libparts.a main.c
//! linkers: lld
//! expect: device 1
//! expect: 24
// An archive before the object that needs it: lld searches earlier archives, too, and so does the device link.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
