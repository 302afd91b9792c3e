/* Device code and data that the kernel of main.cpp needs; their own need is in the library. */
#include "api.h"

extern __device__ int of_library(int);
__device__ int offset = 11;
__device__ int part(int i) { return of_library(i) + offset; }
