/* A member that the host code pulls. It needs device code of device.cu, whose host code nothing needs. */
#include "check.h"
extern __device__ int of_device(int);
__global__ void library(int *p) { p[threadIdx.x] = of_device(threadIdx.x); }
int run_library() {
  begin();
  check("library", 32, [](int *p) { library<<<1, 32>>>(p); }, [](int i) { return i * i + 1; });
  return finish();
}
