/* A device function and a device variable for main.cu, and a kernel. */
#include "check.h"

__device__ int counter;
__device__ int twice(int x) { return 2 * x; }
static __device__ int hidden = 9; /* not that of main.cu */
__global__ void other(int *p) { p[threadIdx.x] = twice(threadIdx.x) + hidden; }

void run_other() {
  check("other", 32, [](int *p) { other<<<1, 32>>>(p); }, [](int i) { return 2 * i + 9; });
}
