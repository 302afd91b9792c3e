//! flags: -O2
//! static libplugins.a: square.cpp cube.cpp
//! static libtail.a: tail.cpp
//! link: main.cpp -L. -Wl,--whole-archive -lplugins -Wl,--no-whole-archive -ltail
//! linkers: bfd lld
//! expect: device 1
//! expect: cube 27
//! expect: square 9
// Members without references register themselves on the host, and their kernels are linked.
#include "plugins.h"
#include <cstdio>

int main() {
  int host = 1;
  std::printf("device %d\n", (tail(&host), !host));
  for (auto &[name, run] : plugins())
    std::printf("%s %d\n", name.c_str(), run(3));
}
