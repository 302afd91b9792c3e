//! flags: -O1
//! merge both.o: one.c two.c
//! link: main.c both.o
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// Two fat objects merged by `ld -r`: one section with two images.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
