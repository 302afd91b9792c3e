# shellcheck shell=bash
# Rows of a link for six GPUs with bitcode as device code. LTO dominates the cost, once per GPU.

gpus=gfx900,gfx906,gfx90a,gfx942,gfx1030,gfx1100

# C++ source of a matrix class, whose operator has ATTRIBUTES.
matrix() { # ATTRIBUTES
    cat <<EOF
template <int N> struct Matrix {
  float at[N][N];
  $1Matrix operator*(const Matrix &other) const {
    Matrix product;
    for (int r = 0; r < N; ++r)
      for (int c = 0; c < N; ++c) {
        product.at[r][c] = 0;
        for (int i = 0; i < N; ++i)
          product.at[r][c] += at[r][i] * other.at[i][c];
      }
    return product;
  }
};
EOF
}

# Kernels with work for the optimizer. They call no device library, because clang's packages have none. TUNED changes the kernels' code for
# one GPU only.
gpu_unit() { # N KERNELS
    local k
    cat <<EOF
#ifndef TUNED
#define TUNED 1
#endif
#ifdef __gfx90a__
#define TUNING TUNED
#else
#define TUNING 1
#endif
#pragma omp begin declare target
EOF
    matrix ''
    echo '#pragma omp end declare target'
    for ((k = 0; k < $2; k++)); do
        cat <<EOF
void gpu_$1_$k(float *data, int count) {
#pragma omp target map(tofrom : data[0 : count])
  for (int i = 0; i + 16 < count; i += 16) {
    Matrix<4> a, b;
    for (int n = 0; n < 16; ++n) {
      a.at[n / 4][n % 4] = data[i + n];
      b.at[n % 4][n / 4] = data[i + n] * ${k}.5f + TUNING;
    }
    Matrix<4> c = a * b * a;
    for (int n = 0; n < 16; ++n)
      data[i + n] = c.at[n / 4][n % 4] > $k ? c.at[n / 4][n % 4] : a.at[n / 4][n % 4];
  }
}
EOF
    done
}

compile_gpu() { # FLAGS SOURCE OBJECT
    echo "'$llvm/bin/clang++' -O2 -fopenmp --offload-arch=$gpus -nogpulib $1 -c '$2' -o '$3'"
}

tuned() { # before: an object with new code for one GPU
    cp "gpu/tuned.$2" gpu/0.o
}

group_amdgcn() {
    local n line floor
    mkdir gpu
    say "compiling for 6 GPUs"
    gpu_unit 0 1 > gpu/0.cpp
    for n in 1 2 3 4; do gpu_unit "$n" "${KERNELS:-4}" > "gpu/$n.cpp"; done
    { echo 'void gpu_0_0(float *, int);'; echo 'int main() { float data[64] = {}; gpu_0_0(data, 64); }'; } > gpu/main.cpp
    {
        for n in 0 1 2 3 4 main; do compile_gpu '' "gpu/$n.cpp" "gpu/$n.o"; done
        for ((n = 0; n <= RUNS + 1; n++)); do compile_gpu "-DTUNED=$((n + 2))" gpu/0.cpp "gpu/tuned.$n"; done
    } | in_parallel
    line=$(argv -fuse-ld=lld -fopenmp "--offload-arch=$gpus" -nogpulib -Xoffload-linker --unresolved-symbols=ignore-all \
        gpu/{main,0,1,2,3,4}.o -o OUT)
    other_program -fopenmp "--offload-arch=$gpus" -nogpulib -Xoffload-linker --unresolved-symbols=ignore-all
    gpu_row amdgcn-cold '6 GPUs with LTO, cold' "$line" cold
    gpu_row amdgcn-cold-jobs '6 GPUs with LTO, cold, --wrapper-jobs=2 for both' "$line --wrapper-jobs=2" cold
    new_cache amdgcn
    gpu_row amdgcn-warm '6 GPUs with LTO, warm' "$line"
    gpu_row amdgcn-one "6 GPUs with LTO, warm, one GPU's code changed" "$line" tuned
    amdgcn_names_rows
}

# Many small translation units for one GPU.
amdgcn_names_rows() {
    local count=${UNITS:-300} objects offload=(-fopenmp --offload-arch=gfx90a -nogpulib)
    generate_units gpu/many 0 "$count"
    # shellcheck disable=SC2046 # numbers
    generate_main gpu/many $(seq 0 $((count - 1)))
    offload+=(-Xoffload-linker --unresolved-symbols=ignore-all)
    mapfile -t objects < <(seq -f 'gpu/many/%g.o' 0 $((count - 1)))
    other_program "${offload[@]}"
    # Without a floor, because a cold link takes seconds.
    names_rows amdgcn-names "$count objects for a GPU with LTO" \
        "$(argv -fuse-ld=lld "${offload[@]}" gpu/many/{main,mix}.o "${objects[@]}" -o OUT)" floor_is='' floor='' runs="$LARGE_RUNS"
}

gpu_row() { # KEY TITLE LINE [BEFORE]
    local floor
    floor=$(host_line "$ours $(line_for floor "$3")") || exit 1
    row "$1" "$2" floor_is='ld.lld alone' floor="$floor" theirs="$theirs $(line_for theirs "$3")" ours="$ours $(line_for ours "$3")" \
        before="${4:-}"
}
