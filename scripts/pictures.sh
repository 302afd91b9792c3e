#!/usr/bin/env bash
# Creates the pictures of README.md and docs/ in docs/images from offld's output. Run it manually after `make build` when the output has
# changed, and review the pictures. Other pictures there: size.png, a Chromium screenshot of `offld size --html` for libcurand 10.3.10,
# and cluster.svg (benches/cluster-simulation.py).
# usage: pictures.sh [OFFLD]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
images=$here/../docs/images
offld=$(realpath "${1:-$here/../target/release/offld}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
PATH=${offld%/*}:/usr/lib/llvm-22/bin:$PATH
mkdir lib
export OFFLD_CACHE=off LD_LIBRARY_PATH=lib
offld links names > /dev/null

# A HIP library of three translation units for three GPUs, with device LTO. It needs no ROCm.
cat > kernels.h <<'END'
#define __global__ __attribute__((global))
typedef struct hipStream *hipStream_t;
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
#define at (__builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x())
END
cat > scale.hip <<'END'
#include "kernels.h"
__global__ void scale(float *data, float by, int count) { if (at < count) data[at] *= by; }
END
cat > reduce.hip <<'END'
#include "kernels.h"
__global__ void reduce(const double *data, double *sums, int count) {
  __attribute__((shared)) static double parts[256];
  int own = __builtin_amdgcn_workitem_id_x();
  parts[own] = at < count ? data[at] : 0;
  for (int half = 128; half; half /= 2) {
    __builtin_amdgcn_s_barrier();
    if (own < half) parts[own] += parts[own + half];
  }
  if (!own) sums[__builtin_amdgcn_workgroup_id_x()] = parts[0];
}
END
cat > multiply.hip <<'END'
#include "kernels.h"
template <typename T, int Width> __global__ void multiply(const T *a, const T *b, T *c) {
  T sums[Width][Width] = {};
  for (int step = 0; step < Width; step++)
    for (int i = 0; i < Width; i++)
      for (int j = 0; j < Width; j++) sums[i][j] += a[at * Width + i + step] * b[step * Width + j];
  for (int i = 0; i < Width; i++)
    for (int j = 0; j < Width; j++) c[(at * Width + i) * Width + j] = sums[i][j];
}
template __global__ void multiply<float, 8>(const float *, const float *, float *);
template __global__ void multiply<double, 4>(const double *, const double *, double *);
END
for unit in scale reduce multiply; do
    clang++ -B names -x hip --offload-new-driver --offload-arch=gfx90a,gfx942,gfx1100 -nogpuinc -nogpulib -O2 -fPIC -fgpu-rdc "-cuid=$unit" -c "$unit.hip"
done
clang -shared -fPIC -Wl,-soname,libamdhip64.so.6 "$here/../runtime-stubs/hip.c" -o lib/libamdhip64.so.6
ln -s libamdhip64.so.6 lib/libamdhip64.so
clang++ -B names --offload-new-driver --hip-link --offload-arch=gfx90a,gfx942,gfx1100 -nogpulib -fgpu-rdc --offload-compress -fuse-ld=lld -shared \
    scale.o reduce.o multiply.o -Llib -Wl,--wrapper-time-trace=trace.json -o libkernels.so

{
    echo '$ offld inspect --kernels libkernels.so'
    offld inspect --kernels libkernels.so
} > inspect.txt
python3 "$here/pictures.py" terminal inspect.txt "$images/inspect.svg"
python3 "$here/pictures.py" trace trace.json "$images/trace.svg"

find "$images" -size +100k -exec echo 'too large:' {} \; >&2
ls -l "$images"
