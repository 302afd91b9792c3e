//! flags: -O1
//! static libone.a: one.c
//! response inner.rsp: two.c -L. -Wl,--start-group
//! response line.rsp: main.c @inner.rsp -lone -Wl,--end-group -Wl,-z,now
//! link: @line.rsp
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// The whole command line in a response file that names another one, as build systems write for long command lines.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
