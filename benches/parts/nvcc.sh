# shellcheck shell=bash
# Rows of a link of nvcc's relocatable code for six GPUs. They compare offld with `nvcc -dlink` plus a host link. The floor is the host link.

NVCC_UNITS=${NVCC_UNITS:-100} NVCC_RUNS=${NVCC_RUNS:-3}
nvcc_gpus=(75 80 86 89 90 100)

# A unit with a kernel that multiplies small matrices, and that calls a device function of the next unit.
nvcc_unit() { # N
    local next=$((($1 + 1) % NVCC_UNITS))
    cat <<EOT
extern __device__ float of_$next(float);
__device__ float table_$1[64];
__device__ float of_$1(float x) { return x * $1.5f + table_$1[threadIdx.x & 63]; }
template <int n> struct Matrix {
  float at[n][n];
  __device__ Matrix times(const Matrix &other) const {
    Matrix result;
    for (int i = 0; i < n; ++i)
      for (int k = 0; k < n; ++k) {
        result.at[i][k] = 0;
        for (int m = 0; m < n; ++m)
          result.at[i][k] += at[i][m] * other.at[m][k];
      }
    return result;
  }
};
__global__ void kernel_$1(float *data, int count) {
  for (int i = 16 * threadIdx.x; i + 16 < count; i += 1024) {
    Matrix<4> a, b;
    for (int n = 0; n < 16; ++n) {
      a.at[n / 4][n % 4] = data[i + n];
      b.at[n % 4][n / 4] = of_$1(data[i + n]) + of_$next(data[i + n]);
    }
    Matrix<4> c = a.times(b).times(a);
    for (int n = 0; n < 16; ++n)
      data[i + n] = c.at[n / 4][n % 4];
  }
}
void run_$1(float *data) { kernel_$1<<<1, 64>>>(data, 100000); }
EOT
}

# A cache without these units.
cold_nvcc() { [ "$1" != ours ] || rm -rf "$OFFLD_CACHE"; }

group_nvcc() {
    local n gpu compiler options=() objects=() list=${OFFLD_CUDA:-$benches/../target/cuda}/cuda.txt
    compiler=$(sed -n 's|^nvcc path=||p' "$list" 2>/dev/null)
    if [ -z "$compiler" ]; then
        leave_out 'nvcc not found (make setup-cuda)' nvcc-cold nvcc-warm
        return
    fi
    for gpu in "${nvcc_gpus[@]}"; do options+=("-gencode=arch=compute_$gpu,code=sm_$gpu"); done
    mkdir -p nvcc
    say "compiling $NVCC_UNITS units with nvcc for ${#nvcc_gpus[@]} GPUs"
    echo 'int main() { return 0; }' > nvcc/main.cpp
    g++ -c nvcc/main.cpp -o nvcc/main.o
    objects=(nvcc/main.o)
    for ((n = 0; n < NVCC_UNITS; n++)); do
        nvcc_unit "$n" > "nvcc/$n.cu"
        echo "'$compiler/bin/nvcc' -rdc=true -O2 -Xcompiler=-fPIC ${options[*]} -c nvcc/$n.cu -o nvcc/$n.o"
    done | in_parallel
    for ((n = 0; n < NVCC_UNITS; n++)); do objects+=("nvcc/$n.o"); done
    "$offld" links --as-ld nvcc/ld >/dev/null
    local libraries="-L$compiler/lib -lcudadevrt -lcudart_static -ldl -lrt -lpthread"
    echo "'$compiler/bin/nvcc' -dlink ${options[*]} ${objects[*]} -o nvcc/dlink.o && g++ ${objects[*]} nvcc/dlink.o $libraries -o nvcc/theirs" > nvcc/theirs.sh
    echo "PATH='$compiler/bin':\$PATH g++ -B nvcc/ld ${objects[*]} $libraries -o nvcc/ours" > nvcc/ours.sh
    echo "g++ ${objects[*]} nvcc/dlink.o $libraries -o nvcc/floor" > nvcc/floor.sh
    sh nvcc/theirs.sh || fail 'nvcc cannot link the units (see above)'
    row nvcc-cold "$NVCC_UNITS units of nvcc for ${#nvcc_gpus[@]} GPUs, cold, compared with nvcc -dlink" floor_is='g++ alone' floor='sh nvcc/floor.sh' theirs='sh nvcc/theirs.sh' \
        ours='sh nvcc/ours.sh' before=cold_nvcc over_floor=yes runs="$NVCC_RUNS"
    sh nvcc/ours.sh || fail 'offld cannot link the units (see above)'
    row nvcc-warm "$NVCC_UNITS units of nvcc for ${#nvcc_gpus[@]} GPUs, warm, compared with nvcc -dlink" floor_is='g++ alone' floor='sh nvcc/floor.sh' theirs='sh nvcc/theirs.sh' \
        ours='sh nvcc/ours.sh' over_floor=yes runs="$NVCC_RUNS"
}
