//! flags: -O1
//! expect: device 1
//! expect: 7 10 21
// Function pointers that are taken on the host and called on the device. Entries with the indirect flag translate them.
#include <omp.h>
#include <stdio.h>

int add(int a, int b) { return a + b; }
int twice(int a, int b) { return (void)a, 2 * b; }
int times(int a, int b) { return a * b; }
#pragma omp declare target to(add, twice, times) indirect

int main(void) {
  int (*table[3])(int, int) = {add, twice, times};
  int host = 1, out[3];
#pragma omp target map(to : table) map(from : out, host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 3; ++i)
      out[i] = table[i](i == 0 ? 2 : 3, i == 2 ? 7 : 5);
  }
  printf("device %d\n%d %d %d\n", !host, out[0], out[1], out[2]);
  return 0;
}
