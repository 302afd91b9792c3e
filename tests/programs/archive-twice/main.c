//! flags: -O1
//! static libone.a: one.c
//! static libtwo.a: two.c
//! link: main.c -L. -lone -ltwo -lone
//! reference: fails (an archive named twice is linked twice on the device: multiple definition)
//! expect: device 1
//! expect: 24
// Libraries that need each other, with one of them twice on the command line, as is traditional.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
