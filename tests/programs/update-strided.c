//! flags: -O2
//! expect: device 1
//! expect: 0 -1 2 -3 4 -5 6 -7
//! expect: 10 -1 12 -3 14 -5 16 -7
// `target update` of every second element: to the device, then from it.
#include <omp.h>
#include <stdio.h>

static void show(const int *a) {
  for (int i = 0; i < 8; ++i)
    printf("%d%c", a[i], i == 7 ? '\n' : ' ');
}

int main(void) {
  int a[8], host = 1;
  for (int i = 0; i < 8; ++i)
    a[i] = i;
#pragma omp target data map(to : a)
  {
#pragma omp target map(from : host)
    {
      host = omp_is_initial_device();
      for (int i = 0; i < 8; ++i)
        a[i] = i + 10;
    }
    for (int i = 1; i < 8; i += 2)
      a[i] = -i;
    printf("device %d\n", !host);
    show(a);
#pragma omp target update from(a[0 : 4 : 2])
    show(a);
  }
  return 0;
}
