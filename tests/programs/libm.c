//! flags: -O1
//! link: libm.c -lm
//! expect: device 1
//! expect: sqrt 12 pow 1024 exp 2.718 cos -1.000 hypot 5
// Library functions on the device: the device link finds libm in the same directory as the host link.
#include <math.h>
#include <omp.h>
#include <stdio.h>

int main(void) {
  int host = 1;
  double in[5] = {144, 10, 1, 3.14159265358979, 3}, out[5];
#pragma omp target map(to : in) map(from : out, host)
  {
    host = omp_is_initial_device();
    out[0] = sqrt(in[0]);
    out[1] = pow(2, in[1]);
    out[2] = exp(in[2]);
    out[3] = cos(in[3]);
    out[4] = hypot(in[4], 4);
  }
  printf("device %d\n", !host);
  printf("sqrt %g pow %g exp %.3f cos %.3f hypot %g\n", out[0], out[1], out[2], out[3], out[4]);
  return 0;
}
