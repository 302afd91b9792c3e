/* Device code and data for the kernel of main.cpp, which depend on the static library. */
#include "api.h"

extern __device__ int of_library(int);
__device__ int offset = 11;
__device__ int part(int i) { return of_library(i) + offset; }
