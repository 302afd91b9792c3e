//! flags: -O2
//! cflags part.c: -Xopenmp-target -march=x86-64-v2
//! link: main.c part.c
//! reference: fails (a generic object before a more specific one is left out of that one's image)
//! expect: device 1
//! expect: 42
// Generic device code and code for a specific CPU make one image: the more specific target includes the generic object.
#define FUNCTION part
#define ARGUMENT 40
#include "../common/main.h"
