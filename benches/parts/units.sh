# shellcheck shell=bash
# Rows of a build of HIP units, each of them for six GPUs: clang 22 calls the wrapper once for each unit (--offload-new-driver, no
# -fgpu-rdc), and what is measured is these calls, one after another. The kernels of a unit take at least 50 ms of code generation for
# each GPU. There are no device libraries in clang's packages, so there are no calls of any (-nogpulib).

HIP_UNITS=${HIP_UNITS:-100} HIP_UNIT_RUNS=${HIP_UNIT_RUNS:-3}
unit_gpus=gfx900,gfx906,gfx90a,gfx942,gfx1030,gfx1100

hip_unit() { # N
    local k
    cat <<'EOT'
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
typedef struct hipStream *hipStream_t;
struct dim3 { unsigned x, y, z; };
typedef int hipError_t;
extern "C" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
EOT
    matrix '__device__ '
    for ((k = 0; k < 3; k++)); do
        cat <<EOT
__global__ void unit_$1_$k(float *data, int count) {
  for (int i = 0; i + 16 < count; i += 16) {
    Matrix<4> a, b;
    for (int n = 0; n < 16; ++n) {
      a.at[n / 4][n % 4] = data[i + n];
      b.at[n % 4][n / 4] = data[i + n] * $1.${k}5f;
    }
    Matrix<4> c = a * b * a;
    for (int n = 0; n < 16; ++n)
      data[i + n] = c.at[n / 4][n % 4] > $k ? c.at[n / 4][n % 4] : a.at[n / 4][n % 4];
  }
}
EOT
    done
    cat <<'EOT'
#ifdef EDITED
int host_code_that_was_edited(int x) { return x * 3; }
#endif
EOT
}

# A wrapper that keeps what it is called with: the packed device code of the unit, and the words.
capture() {
    mkdir -p units/capture
    cat > units/capture/clang-linker-wrapper <<'EOT'
#!/bin/sh
for word; do
    case $last in -o) out=$word ;; esac
    last=$word
done
cp "$last" "$KEEP.out"
for word; do
    case $word in "$out") word=OUT ;; "$last") word=IN ;; esac
    echo "$word"
done > "$KEEP.words"
: > "$out"
echo > "$out"
EOT
    chmod +x units/capture/clang-linker-wrapper
}

compile_hip() { # N NAME FLAGS
    echo "KEEP=units/$2 '$llvm/bin/clang++' -x hip -O2 -nogpuinc -nogpulib --offload-new-driver --offload-arch=$unit_gpus -cuid=unit$1 $3 -B units/capture -c units/$1.hip -o units/$2.o"
}

# A script with the call of the wrapper for each unit: SIDE WRAPPER NAME. What a unit becomes is SIDE.N.
unit_calls() {
    local n words word
    for ((n = 0; n < HIP_UNITS; n++)); do
        words=''
        while read -r word; do
            case $word in OUT) word=units/$1.$n ;; IN) word=units/$3$n.out ;; esac
            words+=" '$word'"
        done < "units/$3$n.words"
        echo "$2$words || exit"
    done > "units/$1.sh"
}

unit_outputs_agree() {
    local n
    for ((n = 0; n < HIP_UNITS; n++)); do
        cmp -s "units/theirs.$n" "units/ours.$n" || { echo "unit $n differs"; return; }
    done
}

# Nothing of these units is in the cache, but clang has been asked what it runs.
cold_units() {
    [ "$1" = ours ] || return 0
    rm -rf "$OFFLD_CACHE"
    cp -a "$work/cache.units.known" "$OFFLD_CACHE"
}

group_units() {
    local n
    capture
    say "compiling $HIP_UNITS HIP units for 6 GPUs, each before and after an edit of its host code"
    for ((n = 0; n <= HIP_UNITS; n++)); do hip_unit "$n" > "units/$n.hip"; done
    {
        for ((n = 0; n <= HIP_UNITS; n++)); do compile_hip "$n" "$n" ''; done
        for ((n = 0; n < HIP_UNITS; n++)); do compile_hip "$n" "edited$n" -DEDITED; done
    } | in_parallel
    # Another unit than those that are measured, twice: files that were written a moment ago are not taken for known.
    for n in 1 2; do
        sleep 0.1
        (HIP_UNITS=$((HIP_UNITS + 1)) && unit_calls other "OFFLD_CACHE=$work/cache.units.known $ours" '') && tail -n 1 units/other.sh > units/last.sh
        sh units/last.sh || fail 'a unit cannot be linked'
    done

    unit_calls theirs "$theirs" '' && unit_calls ours "$ours" ''
    row units-cold "$HIP_UNITS HIP units for 6 GPUs, cold" theirs='sh units/theirs.sh' ours='sh units/ours.sh' before=cold_units after=unit_outputs_agree \
        runs="$HIP_UNIT_RUNS"
    cp units/ours.sh units/off.sh
    row units-miss "$HIP_UNITS HIP units for 6 GPUs, cold, beside the same without a cache" theirs="env OFFLD_CACHE=off sh units/off.sh" \
        ours='sh units/ours.sh' before=cold_units runs="$HIP_UNIT_RUNS" paired=1
    sleep 0.1
    sh units/ours.sh || fail 'the units cannot be linked'
    unit_calls theirs "$theirs" edited && unit_calls ours "$ours" edited
    row units-host "$HIP_UNITS HIP units for 6 GPUs, the host code of each edited" theirs='sh units/theirs.sh' ours='sh units/ours.sh' \
        after=unit_outputs_agree runs="$HIP_UNIT_RUNS"
}
