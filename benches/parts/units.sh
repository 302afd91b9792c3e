# shellcheck shell=bash
# Rows of a build of HIP translation units, each for six GPUs. clang 22 runs the wrapper once per unit (--offload-new-driver, no -fgpu-rdc);
# the rows measure these runs, one after another. The kernels of a unit take at least 50 ms of code generation per GPU. They call no device
# library, because clang's packages have none (-nogpulib).

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

# Creates a wrapper that saves its input, the packed device code of the unit, and its arguments.
capture() {
    mkdir -p units/capture
    cat > units/capture/clang-linker-wrapper <<'EOT'
#!/bin/sh
for arg; do
    case $last in -o) out=$arg ;; esac
    last=$arg
done
cp "$last" "$KEEP.out"
for arg; do
    case $arg in "$out") arg=OUT ;; "$last") arg=IN ;; esac
    echo "$arg"
done > "$KEEP.arguments"
: > "$out"
echo > "$out"
EOT
    chmod +x units/capture/clang-linker-wrapper
}

compile_hip() { # N NAME FLAGS
    echo "KEEP=units/$2 '$llvm/bin/clang++' -x hip -O2 -nogpuinc -nogpulib --offload-new-driver --offload-arch=$unit_gpus -cuid=unit$1 $3 -B units/capture -c units/$1.hip -o units/$2.o"
}

# Writes a script that runs the wrapper for each unit: SIDE WRAPPER NAME. The output of unit N is SIDE.N.
unit_calls() {
    local n arguments arg
    for ((n = 0; n < HIP_UNITS; n++)); do
        arguments=''
        while read -r arg; do
            case $arg in OUT) arg=units/$1.$n ;; IN) arg=units/$3$n.out ;; esac
            arguments+=" '$arg'"
        done < "units/$3$n.arguments"
        echo "$2$arguments || exit"
    done > "units/$1.sh"
}

unit_outputs_agree() {
    local n
    for ((n = 0; n < HIP_UNITS; n++)); do
        cmp -s "units/theirs.$n" "units/ours.$n" || { echo "unit $n differs"; return; }
    done
}

# A cache without these units, but with clang's answers.
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
    # A unit that is not measured, twice, because offld does not trust the timestamps of files that were written a moment ago.
    for n in 1 2; do
        sleep 0.1
        (HIP_UNITS=$((HIP_UNITS + 1)) && unit_calls other "OFFLD_CACHE=$work/cache.units.known $ours" '') && tail -n 1 units/other.sh > units/last.sh
        sh units/last.sh || fail 'cannot link a translation unit (see above)'
    done

    unit_calls theirs "$theirs" '' && unit_calls ours "$ours" ''
    row units-cold "$HIP_UNITS HIP files for 6 GPUs, cold" theirs='sh units/theirs.sh' ours='sh units/ours.sh' before=cold_units after=unit_outputs_agree \
        runs="$HIP_UNIT_RUNS"
    cp units/ours.sh units/off.sh
    row units-miss "$HIP_UNITS HIP files for 6 GPUs, cold, compared with the same without a cache" theirs="env OFFLD_CACHE=off sh units/off.sh" \
        ours='sh units/ours.sh' before=cold_units runs="$HIP_UNIT_RUNS" paired=1
    sleep 0.1
    sh units/ours.sh || fail 'cannot link the translation units (see above)'
    unit_calls theirs "$theirs" edited && unit_calls ours "$ours" edited
    row units-host "$HIP_UNITS HIP files for 6 GPUs, the host code of each edited" theirs='sh units/theirs.sh' ours='sh units/ours.sh' \
        after=unit_outputs_agree runs="$HIP_UNIT_RUNS"
}
