#!/usr/bin/env bash
# Measures how splitting full LTO into 1, 2, 4 and 8 partitions changes code size, registers and scratch memory of all kernels, as a Markdown
# table (docs/dev/measurements.md). Inputs: the benchmark's, kernels that share functions, examples/many, the OpenMP programs of
# tests/programs, and, with LLVM 19 and AMD's device libraries (setup-releases), HIP programs that call these libraries.
# usage: lto-corpus.sh
set -euo pipefail
benches=$(cd "$(dirname "$0")" && pwd)
cd "$benches/.."
# shellcheck source=benches/parts/begin.sh
. "$benches/parts/begin.sh"
# shellcheck source=benches/parts/amdgcn.sh
. "$benches/parts/amdgcn.sh"
# shellcheck source=benches/parts/units.sh
. "$benches/parts/units.sh"
# shellcheck source=benches/parts/lto.sh
. "$benches/parts/lto.sh"
cd "$work"
bin=${LLVM:-/usr/lib/llvm-22}/bin packager=${LLVM:-/usr/lib/llvm-22}/bin/llvm-offload-binary

# A translation unit with a kernel, and in the first four units a function that kernels of other units call. noinline keeps the calls.
shared_unit() { # N
    local n=$1 k
    for k in 0 1 2 3; do echo "extern \"C\" __attribute__((device)) float shared_$k(float, int);"; done
    [ "$n" -gt 3 ] || cat <<EOF
extern "C" __attribute__((device, noinline)) float shared_$n(float x, int n) {
  float a[8];
  for (int i = 0; i < 8; ++i) a[i] = x * i + $n.5f;
  for (int i = 0; i < n; ++i) a[i % 8] = a[(i + 3) % 8] * x - a[(i + 5) % 8] / (i + 1);
  return a[0] + a[1] * a[2] - a[3] + a[4] * a[5] - a[6] + a[7];
}
EOF
    cat <<EOF
__attribute__((global)) void kernel_$n(float *data, int n) { data[$n] = shared_$((n % 4))(data[0], n) + shared_$(((n + 1) % 4))(data[1], n); }
EOF
}

# A translation unit whose kernels call functions of the device library in loops.
math_unit() { # N
    local n=$1 k
    hip_unit "$n" | sed '/^__global__/,$d'
    echo 'extern "C" __device__ float __ocml_sin_f32(float), __ocml_pow_f32(float, float), __ocml_tgamma_f32(float);'
    echo 'extern "C" __device__ double __ocml_exp_f64(double), __ocml_erf_f64(double), __ocml_log_f64(double);'
    for k in 0 1 2; do cat <<EOF
__global__ void math_${n}_$k(float *x, double *y, int count) {
  for (int i = 0; i < count; ++i) {
    x[i] = __ocml_sin_f32(x[i] * $n.${k}5f) + __ocml_pow_f32(x[i], $k.5f) - __ocml_tgamma_f32(x[i]);
    y[i] = __ocml_exp_f64(y[i] / ($n + 1)) * __ocml_erf_f64(y[i]) + __ocml_log_f64(y[i] + $k);
  }
}
EOF
    done
}

# Compiles the sources of a program to bitcode, in a directory NAME: NAME FLAGS FILE….
bitcode() {
    local name=$1 flags=$2 file
    shift 2
    mkdir -p "$name"
    for file; do
        # shellcheck disable=SC2086
        "$bin/clang" -O2 $flags -c "$file" -o device.o 2>/dev/null || return
        "$bin/llvm-objcopy" --dump-section .llvm.offloading=device.pack device.o /dev/null || return
        "$packager" device.pack "--image=file=$name/$(basename "$file").bc,triple=amdgcn-amd-amdhsa" || return
    done
}

# Prints the rows of a program. The bitcode of each directory is linked separately, and the sizes are added: NAME DIR….
measure() {
    local name=$1 parts folder
    shift
    [ $# -gt 0 ] || { echo "lto-corpus: nothing was compiled for '$name'" >&2; exit 1; }
    for parts in 1 2 4 8; do
        for folder; do
            "$bin/ld.lld" -w -shared -plugin-opt=mcpu=gfx90a --unresolved-symbols=ignore-all "--lto-partitions=$parts" "$folder"/*.bc -o image || exit
            "$bin/llvm-size" -A image | awk '$1 == ".text" { print "text", $2 }'
            "$bin/llvm-readelf" --notes image
            echo "bytes $(stat -c %s image)"
        done | awk -v name="$name" -v parts="$parts" '
            $1 == "text" { text += $2 }
            $1 == "bytes" { bytes += $2 }
            $1 == ".vgpr_count:" { vgpr += $2; if ($2 > most) most = $2; kernels++ }
            $1 == ".sgpr_count:" { sgpr += $2 }
            $1 == ".private_segment_fixed_size:" { scratch += $2 }
            $1 ~ /^\.[vs]gpr_spill_count:$/ { spilled += $2 }
            END { printf "| %s | %d | %d | %d | %d | %d (%d) | %d | %d | %d |\n", name, kernels, parts, bytes, text, vgpr, most, sgpr, scratch, spilled }'
    done
}

# Compiles the programs of tests/programs that this clang accepts for the GPU, each into its own directory below DIR: DIR FLAGS.
programs() {
    local source name
    for source in "$benches"/../tests/programs/*.c "$benches"/../tests/programs/*.cpp; do
        name=$1/$(basename "${source%.*}")
        bitcode "$name" "$2" "$source" 2>/dev/null || rm -rf "$name"
    done
}

echo '| program | kernels | parts | image | code | VGPRs, all kernels (most of one) | SGPRs | scratch | spilled |'
echo '|---|--:|--:|--:|--:|--:|--:|--:|--:|'
for n in 0 1 2 3 4 5 6 7; do lto_unit "$n" 2 > "openmp-$n.cpp"; done
bitcode openmp '-fopenmp --offload-arch=gfx90a -nogpulib -foffload-lto=full' openmp-?.cpp
measure 'OpenMP, loops' openmp
for n in 0 1 2 3; do gpu_unit "$n" 2 > "templates-$n.cpp"; done
bitcode openmp-templates '-fopenmp --offload-arch=gfx90a -nogpulib -foffload-lto=full' templates-?.cpp
measure 'OpenMP, templates' openmp-templates
hip='-x hip -nogpuinc -nogpulib --offload-new-driver -fgpu-rdc --offload-arch=gfx90a'
for n in 0 1 2 3 4 5 6 7; do hip_unit "$n" > "hip-$n.hip"; done
bitcode hip "$hip" hip-?.hip
measure HIP hip
for n in 0 1 2 3 4 5 6 7; do { hip_unit "$n" | sed '/^__global__/,$d'; shared_unit "$n"; } > "shared-$n.hip"; done
bitcode hip-shared "$hip" shared-?.hip
measure 'HIP, kernels that share functions which are not inlined' hip-shared
bitcode many "-fopenmp --offload-arch=gfx90a -nogpulib -foffload-lto=full -I$benches/../examples/many" "$benches"/../examples/many/*.cpp "$benches"/../examples/many/*/*.cpp
measure examples/many many
programs programs '-fopenmp --offload-arch=gfx90a -nogpulib -foffload-lto=full'
measure "tests/programs, $(find programs -mindepth 1 -type d | wc -l) programs" programs/*

# Translation units that call AMD's device library. It is for LLVM 19, which therefore generates the code.
device_library=$(dpkg -L rocm-device-libs 2>/dev/null | sed -n 's,/ockl.bc$,,p')
if [ -n "$device_library" ] && [ -x /usr/lib/llvm-19/bin/ld.lld ]; then
    bin=/usr/lib/llvm-19/bin
    packager=$bin/clang-offload-packager
    for n in 0 1 2 3 4 5 6 7; do math_unit "$n" > "math-$n.hip"; done
    bitcode hip-math "-x hip -nogpuinc --rocm-device-lib-path=$device_library --offload-new-driver -fgpu-rdc --offload-arch=gfx90a" math-?.hip
    measure "HIP with AMD's device library, LLVM 19" hip-math
else
    echo 'lto-corpus: skipping the row with the device library: LLVM 19 or rocm-device-libs not found (make setup-releases)' >&2
fi
