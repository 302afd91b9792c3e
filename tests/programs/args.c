//! flags: -O2
//! args: 12 --name=value 30
//! env: SCALE=10
//! expect: device 1
//! expect: 420 from 4 arguments
// The program receives its arguments and environment unchanged, whatever the registration does.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  int host = 1, sum = atoi(argv[1]) + atoi(argv[3]), scale = atoi(getenv("SCALE"));
#pragma omp target map(tofrom : sum) map(from : host)
  {
    host = omp_is_initial_device();
    sum *= scale;
  }
  printf("device %d\n%d from %d arguments\n", !host, sum, argc);
  return 0;
}
