//! flags: -O2
//! expect: device 1
//! expect: 10 12 14
// A region in a member function maps `this` and uses members through it.
#include <cstdio>
#include <omp.h>

class Vec {
  int v[3] = {0, 1, 2}, offset = 5;

public:
  int host = 1;
  void scale(int factor) {
#pragma omp target map(tofrom : this[0 : 1])
    {
      host = omp_is_initial_device();
      for (int &x : v)
        x = factor * (x + offset);
    }
  }
  int operator[](int i) const { return v[i]; }
};

int main() {
  Vec v;
  v.scale(2);
  std::printf("device %d\n%d %d %d\n", !v.host, v[0], v[1], v[2]);
}
