//! flags: -O1
//! static libone.a: one.c
//! static libtwo.a: two.c
//! link: main.c -L. -Wl,--start-group -lone -ltwo -Wl,--end-group
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// Archives that need each other, in a group.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
