//! flags: -O2 -g
//! expect: device 1
//! expect: table 15 counter 3 host still 0
// Data and a function under declare target: the device has its own copy, set from the same initializer.
#include <omp.h>
#include <stdio.h>

#pragma omp begin declare target
int table[5] = {1, 2, 3, 4, 5};
int counter;
static int next(void) { return ++counter; }
#pragma omp end declare target

int main(void) {
  int host = 1, sum = 0;
  for (int i = 0; i < 3; ++i) {
#pragma omp target map(from : host) map(tofrom : sum)
    {
      host = omp_is_initial_device();
      if (next() == 1)
        for (int j = 0; j < 5; ++j)
          sum += table[j];
    }
  }
  int before = counter;
#pragma omp target update from(counter)
  printf("device %d\n", !host);
  printf("table %d counter %d host still %d\n", sum, counter, before);
  return 0;
}
