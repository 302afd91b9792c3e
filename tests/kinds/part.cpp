/* A kernel and a variable, called by PART: of several languages or libraries in one program. MAIN: and a program. */
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
