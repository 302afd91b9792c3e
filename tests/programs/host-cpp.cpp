//! flags: -O2
//! expect: device 1
//! expect: caught: sum is 60
//! expect: words alpha beta gamma
// Containers, strings and exceptions on the host around a region.
#include <cstdio>
#include <numeric>
#include <omp.h>
#include <stdexcept>
#include <string>
#include <vector>

static int twice(std::vector<int> &v) {
  int host = 1, *data = v.data(), n = static_cast<int>(v.size());
#pragma omp target map(tofrom : data[0 : n]) map(from : host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < n; ++i)
      data[i] *= 2;
  }
  return host;
}

int main() {
  std::vector<int> v{5, 10, 15};
  std::vector<std::string> words{"alpha", "beta", "gamma"};
  std::printf("device %d\n", !twice(v));
  try {
    throw std::runtime_error("sum is " + std::to_string(std::accumulate(v.begin(), v.end(), 0)));
  } catch (const std::exception &e) {
    std::printf("caught: %s\n", e.what());
  }
  std::printf("words");
  for (const auto &w : words)
    std::printf(" %s", w.c_str());
  std::printf("\n");
}
