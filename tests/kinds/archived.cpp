/* A member of a static library, with device code and entries. */
#include "api.h"

__device__ double archive_scale = 2;
__device__ int from_archive(int value) { return value * (int)archive_scale; }
__global__ void archived(int *at) { *at = from_archive(*at); }

int launch_archived() {
  archived<<<1, 1>>>(nullptr);
  return API(GetLastError)();
}
