//! flags: -O1
//! expect: device 1
//! expect: 0 1 4 9 16 sum 30
// A pointer inside a mapped struct is attached: on the device it points to the device's array.
#include <cstdio>
#include <omp.h>

struct Buffer {
  int size;
  int *data;
};

int main() {
  int host = 1, storage[5] = {0, 1, 2, 3, 4};
  Buffer b{5, storage};
#pragma omp target enter data map(to : b) map(to : b.data[0 : b.size])
#pragma omp target map(from : host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < b.size; ++i)
      b.data[i] *= b.data[i];
  }
#pragma omp target exit data map(from : b.data[0 : b.size]) map(release : b)
  std::printf("device %d\n", !host);
  int sum = 0;
  for (int v : storage) {
    std::printf("%d ", v);
    sum += v;
  }
  std::printf("sum %d\n", sum);
}
