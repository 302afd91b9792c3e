/* A program with OpenMP, CUDA, HIP and SYCL. */
#include <stdio.h>
int part_cuda(void), part_hip(void);
void part_sycl(void);

int main(void) {
  int on = 0;
#pragma omp target map(tofrom : on)
  on = 1;
  part_sycl();
  printf("%d %d %d\n", on, part_cuda(), part_hip());
}
