/* Names for sources that compile as CUDA and as HIP. */
#ifdef __HIP__
#include <hip/hip_runtime.h>
#define API(name) hip##name
#else
#include <cuda_runtime.h>
#define API(name) cuda##name
#endif
extern "C" int printf(const char *, ...);

template <class T> __global__ void twice(T *at) { *at += *at; }

int launch_other();
int launch_archived();
