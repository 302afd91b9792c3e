//! flags: -O2
//! link: main.cpp kernel.c host.cpp
//! plain: host.cpp
//! expect: device 1
//! expect: 3.5 (host only: 7)
// C and C++ with device code, and a C++ file without OpenMP.
#include <cstdio>

extern "C" double kernel(double x, int *host);
int host_only();

int main() {
  int host = 1;
  double out = kernel(1.5, &host);
  std::printf("device %d\n%g (host only: %d)\n", !host, out, host_only());
}
