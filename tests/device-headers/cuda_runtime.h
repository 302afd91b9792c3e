/* -x cuda -nocudainc -nocudalib -isystem FOLDER: as much of CUDA's runtime header as small tests use. */
#ifndef OFFLD_CUDA_RUNTIME_H
#define OFFLD_CUDA_RUNTIME_H
#include "device.h"

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorNoDevice = 100 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
typedef struct CUstream_st *cudaStream_t;

/* <<<…>>> becomes a call of the first and, in the kernel's host side, of the second and the third. */
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
extern "C" cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);

/* With -nocudalib clang does not tell the device's compilation which CUDA it is, and that one asks for the first one's old name. */
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
