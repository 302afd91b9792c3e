//! expect: device 1
//! expect: there 20 here 10
// device_type decides which side has a function: the host's symbol table never contains `on_device`, and the device's never
// `only_host`. A variant replaces the call of `where` on the device.
#include <omp.h>
#include <stdio.h>

int on_device(int x) { return x + 20; }
#pragma omp declare target to(on_device) device_type(nohost)
#pragma omp declare variant(on_device) match(device = {kind(nohost)})
int where(int x) { return x + 10; }
#pragma omp declare target to(where) device_type(any)

int only_host(int x) { return x; }
#pragma omp declare target to(only_host) device_type(host)

int main(void) {
  int host = 1, there = -1;
#pragma omp target map(from : host, there)
  {
    host = omp_is_initial_device();
    there = where(0);
  }
  printf("device %d\n", !host);
  printf("there %d here %d\n", there, only_host(where(0)));
  return 0;
}
