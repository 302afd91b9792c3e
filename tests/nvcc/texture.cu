/* Texture objects. */
#include "check.h"
extern __device__ int twice(int);
__global__ void sample(int *p, cudaTextureObject_t texture) { p[threadIdx.x] = twice(tex1Dfetch<int>(texture, threadIdx.x)); }
int main() {
  begin();
  int data[32], *device;
  for (int i = 0; i < 32; ++i)
    data[i] = 3 * i;
  TRY(Malloc(&device, sizeof data));
  TRY(Memcpy(device, data, sizeof data, cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device;
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = sizeof data;
  cudaTextureDesc how = {};
  cudaTextureObject_t texture = 0;
  TRY(CreateTextureObject(&texture, &resource, &how, nullptr));
  check("sample", 32, [=](int *p) { sample<<<1, 32>>>(p, texture); }, [](int i) { return 6 * i; });
  return finish();
}
