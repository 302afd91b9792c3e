/* A kernel that launches another one: code of libcudadevrt.a. */
#include "check.h"
__global__ void child(int *p) { p[threadIdx.x] = 7 + threadIdx.x; }
__global__ void parent(int *p) { child<<<1, 32, 0, cudaStreamTailLaunch>>>(p); }
int main() {
  begin();
  check("dynamic", 32, [](int *p) { parent<<<1, 1>>>(p); }, [](int i) { return 7 + i; });
  return finish();
}
