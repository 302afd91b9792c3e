/* Tests a kernel, of which every result is checked, device variables that the host reads and writes, and with PARTS code and data of other
 * objects. Exit status: 0 success, 1 wrong results or an error, 77 no device, 78 no image for the device. */
#include "api.h"

extern "C" int cudaDeviceGetAttribute(int *value, int attribute, int device);
enum { NO_IMAGE = 209 };

__device__ int calls;
__constant__ int weights[4] = {1, 2, 3, 5};

#ifdef PARTS
extern __device__ int offset; /* in other.cpp */
extern __device__ int part(int);
#else
__device__ int offset = 11;
__device__ int part(int i) { return i % 7 + offset; }
#endif

__global__ void fill(int *to, int factor) {
  int i = own_index();
  if (i < COUNT)
    to[i] = factor * i + weights[i & 3] + part(i);
  if (i == 0)
    ++calls;
}

static int failed(const char *what, API(Error_t) error) {
  printf("%s: %s (%d)\n", what, API(GetErrorString)(error), (int)error);
  return error == NO_IMAGE ? 78 : 1;
}
#define TRY(call) \
  if (API(Error_t) error = API(call)) \
    return failed(#call, error);

static int numbers[COUNT];

static int check(int *device, int factor, const int *expected_weights, int expected_offset, long *sum) {
  fill<<<BLOCKS, BLOCK>>>(device, factor);
  TRY(GetLastError())
  int more = 0;
#ifdef PARTS
  if (int error = launch_library(device))
    return failed("launch_library", (API(Error_t))error);
  more = 3;
#endif
  TRY(DeviceSynchronize())
  TRY(Memcpy(numbers, device, sizeof numbers, API(MemcpyDeviceToHost)))
  for (int i = 0; i < COUNT; ++i) {
    int expected = factor * i + expected_weights[i & 3] + i % 7 + expected_offset + more;
    if (numbers[i] != expected) {
      printf("number %d is %d, and should be %d\n", i, numbers[i], expected);
      return 1;
    }
    *sum += numbers[i];
  }
  return 0;
}

int main() {
  int devices = 0;
  API(Error_t) none = API(GetDeviceCount)(&devices);
  if (none || !devices) {
    printf("no device: %s (%d)\n", API(GetErrorString)(none), (int)none);
    return 77;
  }
#ifndef __HIP__
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, 75, 0);
  cudaDeviceGetAttribute(&minor, 76, 0);
  printf("device: sm_%d%d\n", major, minor);
#endif
  int *device = nullptr;
  long sum = 0;
  TRY(Malloc((void **)&device, sizeof numbers))
  const int before[4] = {1, 2, 3, 5}, after[4] = {10, 20, 30, 50};
  if (int status = check(device, 3, before, 11, &sum))
    return status;
  int other = 100, seen = 0;
  TRY(MemcpyToSymbol(&weights, after, sizeof after))
  TRY(MemcpyToSymbol(&offset, &other, sizeof other))
  if (int status = check(device, -2, after, other, &sum))
    return status;
  TRY(MemcpyFromSymbol(&seen, &calls, sizeof seen))
  if (seen != 2) {
    printf("the kernel counted %d calls, and was called twice\n", seen);
    return 1;
  }
  TRY(Free(device))
  printf("right: 2 x %d numbers, sum %ld\n", (int)COUNT, sum);
}
