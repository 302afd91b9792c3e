/* A kernel and a variable with names from PART, for programs with several languages or libraries. MAIN adds a main function. */
#include "api.h"
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

__device__ int JOIN(variable_, PART);
__global__ void JOIN(kernel_, PART)(int *) {}

extern "C" int PART() {
  JOIN(kernel_, PART)<<<1, 1>>>(nullptr);
  return API(GetLastError)();
}

#ifdef MAIN
extern "C" int MAIN();
int main() { printf("%d %d\n", PART(), MAIN()); }
#endif
