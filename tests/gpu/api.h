/* One source for CUDA and HIP, with only the headers of tests/device-headers. */
#ifdef __HIP__
#include <hip/hip_runtime.h>
#define API(name) hip##name
#define BLOCK_INDEX __builtin_amdgcn_workgroup_id_x()
#define THREAD_INDEX __builtin_amdgcn_workitem_id_x()
#else
#include <cuda_runtime.h>
#define API(name) cuda##name
#define BLOCK_INDEX __nvvm_read_ptx_sreg_ctaid_x()
#define THREAD_INDEX __nvvm_read_ptx_sreg_tid_x()
#endif
extern "C" int printf(const char *, ...);

enum { COUNT = 10000, BLOCK = 256, BLOCKS = (COUNT + BLOCK - 1) / BLOCK };

/* The index of the number that a thread computes. */
__device__ inline int own_index() { return BLOCK_INDEX * BLOCK + THREAD_INDEX; }

/* In library.cpp, a member of a static library: adds three to each number. */
int launch_library(int *at);
