/* A kernel of nvcc with code and data of clang_kernels.cpp. */
#include "check.h"
extern __device__ int of_clang(int);
extern __device__ int clang_counter;
void launch_by_clang(int *p);
__global__ void by_nvcc(int *p) {
  p[threadIdx.x] = of_clang(threadIdx.x);
  if (threadIdx.x == 0)
    ++clang_counter;
}
void run_other();
int value_at_start(); /* in clang_kernels.cpp */
int main() {
  begin();
  int value = value_at_start();
  if (has_device && value != 5) {
    printf("the constructor's kernel stored %d\n", value);
    return 1;
  }
  check("by clang", 32, launch_by_clang, [](int i) { return 2 * i + 4; });
  check("by nvcc", 32, [](int *p) { by_nvcc<<<1, 32>>>(p); }, [](int i) { return 2 * i + 1; });
  check("by clang again", 32, launch_by_clang, [](int i) { return 2 * i + 5; });
  run_other();
  return finish();
}
