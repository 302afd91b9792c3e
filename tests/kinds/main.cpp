/* A kernel, and one of each other entity that is registered. */
#include "api.h"

__device__ int counter = 3;
__constant__ float weights[4] = {1, 2, 3, 4};
surface<void, 2> canvas;
texture<float, 2, 1> picture;

/* The host needs a unique name for this internal variable. The host's use precedes the device's: clang 22 for CUDA treats a variable
 * whose device use comes first as an external one. */
static __device__ int hidden = 5;
const void *address_of_hidden() { return &hidden; }

#ifdef MANAGED
__managed__ long both = 42;
#endif

#ifdef __CLANG_RDC__
extern __device__ int elsewhere; /* in other.cpp */
extern __device__ int from_archive(int);
__global__ void fill(int *to, int value) { *to = from_archive(value + elsewhere + hidden + counter); }
#else
__global__ void fill(int *to, int value) { *to = value + hidden + counter; }
#endif

int main() {
  float weight = 0;
  fill<<<dim3(2, 3), 64, 128>>>(nullptr, 7);
  twice<float><<<1, 1>>>(&weight);
  API(MemcpyFromSymbol)(&weight, &weights, sizeof weight);
  API(MemcpyFromSymbol)(&weight, address_of_hidden(), sizeof weight);
  printf("other %d\n", launch_other());
#ifdef MANAGED
  printf("managed %ld\n", both);
#endif
#ifdef __CLANG_RDC__
  printf("archived %d\n", launch_archived());
#endif
}
