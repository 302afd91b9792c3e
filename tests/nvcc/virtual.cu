/* Virtual functions and function pointers in device code of two units. */
#include "check.h"
#include "shape.h"
__global__ void area(int *p) {
  Shape *shape = make(threadIdx.x);
  p[threadIdx.x] = shape->area();
  delete shape;
}
int main() {
  begin();
  check("area", 32, [](int *p) { area<<<1, 32>>>(p); }, [](int i) { return i % 2 ? i * i : 3 * i; });
  return finish();
}
