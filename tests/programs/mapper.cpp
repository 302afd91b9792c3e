//! flags: -O2
//! expect: device 1
//! expect: 2 4 6 / 20 40
// A declared mapper copies the data that a struct points to, for one struct and for an array. Its entry is a host function.
#include <cstdio>
#include <omp.h>

struct List {
  int size;
  int *items;
};
#pragma omp declare mapper(List l) map(l, l.items[0 : l.size])

int main() {
  int a[] = {1, 2, 3}, b[] = {10, 20}, host = 1;
  List lists[2] = {{3, a}, {2, b}};
#pragma omp target map(tofrom : lists[0 : 2]) map(from : host)
  {
    host = omp_is_initial_device();
    for (List &l : lists)
      for (int i = 0; i < l.size; ++i)
        l.items[i] *= 2;
  }
  std::printf("device %d\n", !host);
  std::printf("%d %d %d / %d %d\n", a[0], a[1], a[2], b[0], b[1]);
}
