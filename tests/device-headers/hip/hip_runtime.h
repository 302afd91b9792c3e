/* The parts of HIP's runtime header that the tests use, for -x hip -nogpuinc -nogpulib -isystem DIR. */
#ifndef OFFLD_HIP_RUNTIME_H
#define OFFLD_HIP_RUNTIME_H
#include "../device.h"

typedef int hipError_t;
enum { hipSuccess = 0, hipErrorNoDevice = 100 };
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
typedef struct ihipStream_t *hipStream_t;

/* The compiler turns <<<…>>> into a call of the first function. The kernel's host stub calls the second and third. */
extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = nullptr);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream);
extern "C" hipError_t hipLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream);

extern "C" hipError_t hipGetDeviceCount(int *count);
extern "C" hipError_t hipMalloc(void **memory, size_t size);
extern "C" hipError_t hipFree(void *memory);
extern "C" hipError_t hipMemcpy(void *to, const void *from, size_t size, hipMemcpyKind kind);
extern "C" hipError_t hipMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset = 0,
                                        hipMemcpyKind kind = hipMemcpyHostToDevice);
extern "C" hipError_t hipMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset = 0,
                                          hipMemcpyKind kind = hipMemcpyDeviceToHost);
extern "C" hipError_t hipDeviceSynchronize(void);
extern "C" hipError_t hipGetLastError(void);
extern "C" const char *hipGetErrorString(hipError_t error);

#endif
