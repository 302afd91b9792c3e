//! flags: -O1
//! link: main.c -Wl,--start-lib one.c two.c unused.c -Wl,--end-lib
//! linkers: lld
//! reference: fails (takes every object between --start-lib and --end-lib, the unused one's undefined device symbol too)
//! expect: device 1
//! expect: 24
// Objects that act as members of an archive: the host link pulls the ones it needs, and the device link uses the same ones.
#define FUNCTION one
#define ARGUMENT 4
#include "../common/main.h"
