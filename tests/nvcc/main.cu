/* Kernels, constants, managed and device variables, and device functions of other units. */
#include "check.h"

extern __device__ int twice(int);
extern __device__ int counter;
__constant__ int table[4] = {1, 2, 3, 4};
__managed__ int shared_value = 5;
static __device__ int hidden = 7;

__global__ void fill(int *p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i] = twice(table[i & 3]) + shared_value + hidden;
}
template <class T> __global__ void add(T *p, T x) { p[threadIdx.x] += x + (T)counter; }

void run_other(); /* in other.cu */

int main() {
  begin();
  check("fill", 64, [](int *p) { fill<<<2, 32>>>(p); }, [](int i) { return 2 * (i % 4 + 1) + 12; });
  if (has_device)
    shared_value = 50;
  int new_table[4] = {10, 20, 30, 40};
  TRY(MemcpyToSymbol(table, new_table, sizeof new_table));
  check("fill again", 64, [](int *p) { fill<<<2, 32>>>(p); }, [](int i) { return 20 * (i % 4 + 1) + 57; });
  int value = 100;
  TRY(MemcpyToSymbol(counter, &value, sizeof value));
  check("add", 32, [](int *p) { add<int><<<1, 32>>>(p, 3); }, [](int) { return 103; });
  run_other();
  return finish();
}
