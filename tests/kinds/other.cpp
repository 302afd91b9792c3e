/* A second source: definitions for the first one's declarations, a template that both use, and a kernel with an internal name. */
#include "api.h"

__device__ int elsewhere = 9;
texture<float, 1, 0> line;

namespace {
__global__ void hidden_kernel(int *at) { *at = elsewhere; }
} // namespace

#if defined(MANAGED) && defined(__CLANG_RDC__)
extern __managed__ long both; /* in main.cpp; it gets an entry here, too */
#define BOTH(value) (both += (value))
#else
#define BOTH(value)
#endif

int launch_other() {
  BOTH(1);
  hidden_kernel<<<1, 32>>>(nullptr);
  twice<float><<<1, 1>>>(nullptr);
  return API(GetLastError)();
}
