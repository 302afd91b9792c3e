/* The parts of CUDA's runtime header that the tests use, for -x cuda -nocudainc -nocudalib -isystem DIR. */
#ifndef OFFLD_CUDA_RUNTIME_H
#define OFFLD_CUDA_RUNTIME_H
#include "device.h"

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorNoDevice = 100 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
typedef struct CUstream_st *cudaStream_t;

/* The compiler turns <<<…>>> into a call of the first function. The kernel's host stub calls the second and third. */
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
extern "C" cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);

/* With -nocudalib, clang does not pass the CUDA version to the device compilation, which then uses the first function's old name. */
extern "C" cudaError_t cudaConfigureCall(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);

extern "C" cudaError_t cudaGetDeviceCount(int *count);
extern "C" cudaError_t cudaMalloc(void **memory, size_t size);
extern "C" cudaError_t cudaFree(void *memory);
extern "C" cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind);
extern "C" cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset = 0,
                                          cudaMemcpyKind kind = cudaMemcpyHostToDevice);
extern "C" cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset = 0,
                                            cudaMemcpyKind kind = cudaMemcpyDeviceToHost);
extern "C" cudaError_t cudaDeviceSynchronize(void);
extern "C" cudaError_t cudaGetLastError(void);
extern "C" const char *cudaGetErrorString(cudaError_t error);

#endif
