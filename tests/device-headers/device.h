/* Definitions that the tests' CUDA and HIP sources need and the compiler does not provide. The headers of both include this one. */
#ifndef OFFLD_DEVICE_H
#define OFFLD_DEVICE_H

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __managed__ __attribute__((managed)) /* clang 22: HIP only */

typedef __SIZE_TYPE__ size_t;

struct dim3 {
  unsigned x, y, z;
  __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* References, as in CUDA up to version 11 and in HIP. The compiler reads the template arguments of their types (surface: texel, type;
 * texture: texel, type, whether reads are normalized) and registers them separately from variables. */
struct textureReference {
  int unused;
};
struct surfaceReference {
  int unused;
};

template <class T, int type = 1, int mode = 0>
struct __attribute__((device_builtin_texture_type)) texture : public textureReference {};
template <class T, int type = 1> struct __attribute__((device_builtin_surface_type)) surface;
template <int type> struct __attribute__((device_builtin_surface_type)) surface<void, type> : public surfaceReference {};

#endif
