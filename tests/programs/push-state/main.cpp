//! flags: -O2
//! static libplugins.a: square.cpp cube.cpp
//! static libtail.a: tail.cpp
//! link: main.cpp -L. -Wl,--push-state,--whole-archive -lplugins -Wl,--pop-state -ltail
//! reference: fails (misses --pop-state and takes libgcc.a whole into the device link)
//! linkers: bfd lld
//! expect: device 1
//! expect: cube 27
//! expect: square 9
// Whole archives up to --pop-state. After it, archives are ordinary again, including the C library and libgcc.
#include "plugins.h"
#include <cstdio>

int main() {
  int host = 1;
  std::printf("device %d\n", (tail(&host), !host));
  for (auto &[name, run] : plugins())
    std::printf("%s %d\n", name.c_str(), run(3));
}
