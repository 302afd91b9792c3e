//! flags: -O2
//! expect: device 1
//! expect: sum 5050 present 0
// omp_target_alloc, _memcpy and _free: device memory without a map clause.
#include <omp.h>
#include <stdio.h>

int main(void) {
  int device = omp_get_default_device(), here = omp_get_initial_device(), host = 1, sum = 0, a[100], b[100];
  int *d = omp_target_alloc(sizeof a, device);
  for (int i = 0; i < 100; ++i)
    a[i] = i;
  omp_target_memcpy(d, a, sizeof a, 0, 0, device, here);
#pragma omp target is_device_ptr(d) map(from : host)
  {
    host = omp_is_initial_device();
    for (int i = 0; i < 100; ++i)
      ++d[i];
  }
  omp_target_memcpy(b, d, sizeof b, 0, 0, here, device);
  int present = omp_target_is_present(b, device);
  omp_target_free(d, device);
  for (int i = 0; i < 100; ++i)
    sum += b[i];
  printf("device %d\n", !host);
  printf("sum %d present %d\n", sum, present);
  return 0;
}
