/* A member of a static library: a device function for other.cpp, and a kernel. */
#include "api.h"

__device__ int of_library(int i) { return i % 7; }

template <class T> __global__ void add(T *at, T what) {
  int i = own_index();
  if (i < COUNT)
    at[i] += what;
}

int launch_library(int *at) {
  add<int><<<BLOCKS, BLOCK>>>(at, 3);
  return API(GetLastError)();
}
