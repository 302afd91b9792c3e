//! flags: -O2 -static-libstdc++ -static-libgcc
//! expect: device 1
//! expect: [2, 4, 6]
// A statically linked C++ library: archives without device code on the command line.
#include <iostream>
#include <omp.h>
#include <sstream>

int main() {
  int host = 1, a[3] = {1, 2, 3};
#pragma omp target map(tofrom : a) map(from : host)
  {
    host = omp_is_initial_device();
    for (int &x : a)
      x *= 2;
  }
  std::ostringstream s;
  s << "device " << !host << "\n[" << a[0] << ", " << a[1] << ", " << a[2] << "]";
  std::cout << s.str() << std::endl;
}
