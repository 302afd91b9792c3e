//! expect: device 1
//! expect: same 0 value 42
// The device address of mapped data, taken on the host and used in a region without maps.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int value[1] = {40}, *p = value, host = 1, same = 1;
#pragma omp target data map(tofrom : p[0 : 1])
  {
#pragma omp target data use_device_ptr(p)
    {
      same = p == value;
#pragma omp target is_device_ptr(p) map(from : host)
      {
        host = omp_is_initial_device();
        *p += 2;
      }
    }
  }
  printf("device %d\n", !host);
  printf("same %d value %d\n", same, value[0]);
  return 0;
}
