//! flags: -O2
//! expect: device 1
//! expect: atomic 1000 captured 499500 critical 1000
// Atomic update and capture, and a named critical section, whose lock is a global variable of the device image.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1, count = 0, tickets = 0, guarded = 0;
  long sum = 0;
#pragma omp target map(from : host)
  host = omp_is_initial_device();
#pragma omp target teams distribute parallel for map(tofrom : count, tickets, sum)
  for (int i = 0; i < 1000; ++i) {
    int ticket;
#pragma omp atomic
    ++count;
#pragma omp atomic capture
    ticket = tickets++;
#pragma omp atomic
    sum += ticket;
  }
#pragma omp target parallel for map(tofrom : guarded)
  for (int i = 0; i < 1000; ++i) {
#pragma omp critical(gate)
    guarded = guarded + 1;
  }
  printf("device %d\natomic %d captured %ld critical %d\n", !host, count, sum, guarded);
  return 0;
}
