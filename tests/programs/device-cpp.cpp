//! flags: -O2
//! expect: device 1
//! expect: sorted 1 2 3 5 8 key 21 caught 7
// The C++ library on the device: allocation, algorithms, exceptions. The device link needs libstdc++, like the host link.
#include <algorithm>
#include <cstdio>
#include <map>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <vector>

int main() {
  int host = 1, key = 0, caught = 0, in[5] = {8, 3, 5, 1, 2};
#pragma omp target map(tofrom : in) map(from : host, key, caught)
  {
    host = omp_is_initial_device();
    std::vector<int> v(in, in + 5);
    std::sort(v.begin(), v.end());
    std::copy(v.begin(), v.end(), in);
    std::map<std::string, int> m;
    m.emplace("one", 1);
    m.emplace("twenty-one", 21);
    key = m.find("twenty-one")->second;
    try {
      throw std::runtime_error("seven c");
    } catch (const std::exception &e) {
      caught = static_cast<int>(std::string(e.what()).size());
    }
  }
  std::printf("device %d\nsorted", !host);
  for (int x : in)
    std::printf(" %d", x);
  std::printf(" key %d caught %d\n", key, caught);
}
