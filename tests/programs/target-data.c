//! flags: -O2
//! expect: device 1
//! expect: present 1 after 499500
//! expect: enter 3 exit 6
// Data stays on the device over several regions. Only `update` and the end of the data region copy it.
#include <omp.h>
#include <stdio.h>

enum { N = 1000 };

int main(void) {
  static int a[N];
  int host = 1, present, after = 0;
#pragma omp target data map(from : a)
  {
#pragma omp target map(from : host)
    {
      host = omp_is_initial_device();
      for (int i = 0; i < N; ++i)
        a[i] = i;
    }
    present = omp_target_is_present(a, omp_get_default_device());
  }
  for (int i = 0; i < N; ++i)
    after += a[i];
  printf("device %d\n", !host);
  printf("present %d after %d\n", present, after);

  int x = 1;
#pragma omp target enter data map(to : x)
#pragma omp target map(tofrom : x)
  x += 2;
#pragma omp target update from(x)
  int entered = x;
#pragma omp target map(tofrom : x)
  x *= 2;
#pragma omp target exit data map(from : x)
  printf("enter %d exit %d\n", entered, x);
  return 0;
}
