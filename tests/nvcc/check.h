/* Included by every program: reports the first wrong result or CUDA error. Exit status: 0 right, 1 wrong or an error, 77 no device, 78 no
 * image for the device. Without a device, all kernels are launched as well, for the registration log of runtime-stubs. */
#pragma once
#include <cstdio>
#include <cstdlib>

inline bool has_device = true;

inline void try_call(cudaError_t error, const char *what) {
  if (error == cudaSuccess || !has_device)
    return;
  printf("%s: %s (%d)\n", what, cudaGetErrorString(error), (int)error);
  /* For relocatable code without an image for the device, CUDA finds no symbols. */
  exit(error == cudaErrorNoKernelImageForDevice || error == cudaErrorSymbolNotFound ? 78 : 1);
}
#define TRY(call) try_call(cuda##call, #call)

/* Prints the architecture for run.sh. */
inline void begin() {
  int devices = 0, major = 0, minor = 0;
  has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices;
  if (!has_device)
    return;
  TRY(DeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  TRY(DeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  printf("device: sm_%d%d\n", major, minor);
}

/* Runs a kernel that fills `count` numbers, and compares each with `expected(i)`. */
template <class Launch, class Expected> void check(const char *what, int count, Launch launch, Expected expected) {
  int *device = nullptr, *host = new int[count];
  TRY(Malloc(&device, count * sizeof(int)));
  TRY(Memset(device, 0, count * sizeof(int)));
  launch(device);
  TRY(GetLastError());
  TRY(DeviceSynchronize());
  TRY(Memcpy(host, device, count * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; has_device && i < count; ++i)
    if (host[i] != expected(i)) {
      printf("%s: number %d is %d, and should be %d\n", what, i, host[i], expected(i));
      exit(1);
    }
  TRY(Free(device));
  delete[] host;
}

/* The last line of the program, and its exit status. */
inline int finish() {
  puts(has_device ? "all right" : "no device");
  return has_device ? 0 : 77;
}
