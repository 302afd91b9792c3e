/* CUDA by clang, with the device headers of tests/device-headers: device code that nvcc's units call, and that calls theirs. */
#include <cuda_runtime.h>
extern "C" int printf(const char *, ...);
extern __device__ int twice(int); /* in other.cu */
__device__ int of_clang(int x) { return twice(x) + 1; }
__device__ int clang_counter = 3;
__global__ void by_clang(int *p) { p[__nvvm_read_ptx_sreg_tid_x()] = of_clang(__nvvm_read_ptx_sreg_tid_x()) + clang_counter; }
void launch_by_clang(int *p) { by_clang<<<1, 32>>>(p); }

/* A kernel that a constructor launches before main. */
__device__ int started;
__global__ void at_start(int value) { started = value; }
struct Start {
  Start() { at_start<<<1, 1>>>(5); }
} start;
int value_at_start() {
  int value = 0;
  cudaMemcpyFromSymbol(&value, &started, sizeof value);
  return value;
}
