//! flags: -O1
//! static libpart.a: part.c
//! shared libpart.so: other.c
//! link: main.c -L. -Wl,-Bstatic -lpart -Wl,-Bdynamic
//! linkers: bfd lld
//! reference: fails (ignores -Bstatic, takes libpart.so, and the image has no part)
//! expect: device 1
//! expect: 42
// The archive and the shared library have the same name. -Bstatic selects the archive.
#define FUNCTION part
#define ARGUMENT 40
#include "../common/main.h"
