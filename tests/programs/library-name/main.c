//! flags: -O1
//! static parts-1.0.archive: one.c two.c
//! link: main.c -L. -l:parts-1.0.archive
//! linkers: bfd lld
//! expect: device 1
//! expect: 24
// A library by its complete file name, with an unknown extension.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
