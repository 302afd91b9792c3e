#!/usr/bin/env bash
# Builds the programs of tests/gpu with offld: each kind of link and each edit of a finished program, for several GPUs. One directory then
# has everything that is needed to run them. Nothing runs here. See docs/dev/gpu-tests.md.
# usage: build.sh DIR      OFFLD: the program (default: target/release/offld)   OFFLD_CUDA: the directory of `make setup-cuda`; without
#        NVIDIA's tools no CUDA program is built   LLVM: the directory of LLVM's programs
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
offld=${OFFLD:-$top/target/release/offld}
llvm=${LLVM:-/usr/lib/llvm-22/bin}
cuda=$(sed -n '/^cuda path=/ { s|||; s| [a-z0-9]*=.*||; p }' "${OFFLD_CUDA:-$top/target/cuda}/cuda.txt" 2>/dev/null || true)
wheel=$(compgen -G "$top/target/wheels/nvidia_cuda_runtime_cu12-*.whl" | tail -n 1 || true)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$offld" links links >/dev/null
headers=$top/tests/device-headers
unset OFFLD_LATE_IMAGES
export OFFLD_CACHE=off LC_ALL=C

# programs.txt has a line per program: its name, its kind, and the architectures of its images. A prefix ptx: marks PTX; others are machine code.
: > "$out/programs.txt"
: > "$out/not-built.txt"
have() { echo "$1 $2 ${*:3}" >> "$out/programs.txt"; } # NAME KIND ARCH…
lack() { echo "$1: ${*:2}" >> "$out/not-built.txt"; }   # NAME WHY…

# Compiles a source of one language for the architectures of $archs, with additional arguments.
compile() { # LANGUAGE SOURCE OUTPUT ARGUMENT…
    local language=$1 source=$2 output=$3 options=()
    shift 3
    case $language in
        cuda) options=(-x cuda -nocudainc -nocudalib "--cuda-path=$cuda") ;;
        hip) options=(-x hip -nogpuinc -nogpulib) ;;
    esac
    "$llvm/clang++" -O2 -fPIC --offload-new-driver "${options[@]}" -isystem "$headers" "--offload-arch=$archs" -B links "$@" \
        -c "$here/$source" -o "$output"
}

# Links objects into a program NAME, with offld in place of LLVM's wrapper.
link() { # LANGUAGE NAME ARGUMENT…
    local language=$1 name=$2 options=()
    shift 2
    case $language in
        cuda) options=("$out/libcudart.so.12" "--cuda-path=$cuda") ;;
        hip) options=(libamdhip64.so.6) ;;
    esac
    "$llvm/clang++" -O2 --offload-link -B links "$@" "${options[@]}" -Wl,-rpath,"\$ORIGIN" -o "$out/$name"
}

# Compiles three sources whose device code is linked together: main, other, and a static library that both need. -cuid gives the same names
# in all builds.
relocatable() { # LANGUAGE DIR ARGUMENT…
    local language=$1 folder=$2 source
    shift 2
    mkdir -p "$folder"
    for source in main other library; do
        compile "$language" "$source.cpp" "$folder/$source.o" -fgpu-rdc -DPARTS "-cuid=$source" "$@"
    done
    rm -f "$folder/libparts.a"
    "$llvm/llvm-ar" rcs "$folder/libparts.a" "$folder/library.o"
    parts=("$folder/main.o" "$folder/other.o" "$folder/libparts.a")
}

# Programs of one language for two architectures: compiled whole, linked, linked late, pruned to one, and two builds merged.
programs() { # LANGUAGE ARCH ARCH
    local language=$1 first=$2 second=$3 arch
    archs=$first,$second
    compile "$language" main.cpp plain.o
    link "$language" "$language-plain" plain.o
    have "$language-plain" "$language" "$first" "$second"

    relocatable "$language" both
    link "$language" "$language-rdc" "${parts[@]}"
    have "$language-rdc" "$language" "$first" "$second"
    OFFLD_LATE_IMAGES=on link "$language" "$language-late" "${parts[@]}"
    have "$language-late" "$language" "$first" "$second"

    # clang requests too old a PTX version unless it accepts --cuda-path, which needs a device library there or -nogpulib.
    local options=()
    if [ "$language" = cuda ]; then options=("-Wl,--device-compiler=nvptx64-nvidia-cuda=-nogpulib"); fi
    relocatable "$language" lto -foffload-lto
    link "$language" "$language-lto" -foffload-lto "${options[@]}" "${parts[@]}"
    have "$language-lto" "$language" "$first" "$second"

    for arch in "$first" "$second"; do
        "$offld" prune --keep "$arch" "$out/$language-rdc" -o "$out/$language-pruned-$arch" >/dev/null
        have "$language-pruned-$arch" "$language" "$arch"
        archs=$arch
        relocatable "$language" "$arch"
        link "$language" "only-$arch" "${parts[@]}"
        mv "$out/only-$arch" .
    done
    "$offld" merge "only-$first" "only-$second" -o "$out/$language-merged" >/dev/null
    have "$language-merged" "$language" "$first" "$second"
}

if [ -n "$cuda" ] && [ -n "$wheel" ]; then
    export PATH=$cuda/bin:$PATH
    python3 - "$wheel" "$out" <<'END'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith("/libcudart.so.12"))
    with open(os.path.join(sys.argv[2], "libcudart.so.12"), "wb") as out:
        out.write(wheel.read(name))
END
    programs cuda sm_80 sm_90
    # PTX next to an image for another GPU: the driver compiles the PTX.
    archs=sm_80
    compile cuda main.cpp ptx.o --cuda-include-ptx=all
    link cuda cuda-ptx ptx.o
    have cuda-ptx cuda sm_80 ptx:sm_80
else
    lack cuda "NVIDIA's tools and the wheel of the runtime are needed (make setup-cuda)"
fi

# Relocatable code of nvcc, linked by g++ with offld, without a device-link step. The sources are in tests/nvcc.
nvcc=$(sed -n 's|^nvcc path=||p' "${OFFLD_CUDA:-$top/target/cuda}/cuda.txt" 2>/dev/null || true)
units() { # ARGUMENT… NAME…: compiles the units to NAME.o, in the directory nvcc
    local options=() name
    mkdir -p nvcc
    for name; do
        case $name in
            -*) options+=("$name") ;;
            *) "$nvcc/bin/nvcc" -rdc=true -O2 -Xcompiler=-fPIC "${options[@]}" -c "$top/tests/nvcc/$name.cu" -o "nvcc/$name.o" ;;
        esac
    done
}
by_gcc() { # NAME ARGUMENT…
    local name=$1
    shift
    PATH=$nvcc/bin:$PATH g++ -B as-ld "$@" "$nvcc/lib/libcudadevrt.a" "$out/libcudart.so.13" -Wl,-rpath,"\$ORIGIN" -o "$out/$name"
}
if [ -n "$nvcc" ]; then
    "$offld" links --as-ld as-ld >/dev/null
    cp -L "$nvcc/lib/libcudart.so.13" "$out/"
    sm=("-gencode=arch=compute_80,code=sm_80" "-gencode=arch=compute_90,code=sm_90")
    units "${sm[@]}" main other library device square unused dynamic texture virtual shape mixed
    by_gcc nvcc-rdc nvcc/main.o nvcc/other.o
    OFFLD_LATE_IMAGES=on by_gcc nvcc-late nvcc/main.o nvcc/other.o
    g++ -c "$top/tests/nvcc/host.cpp" -o nvcc/host.o
    "$llvm/llvm-ar" rcs nvcc/libparts.a nvcc/unused.o nvcc/square.o nvcc/device.o nvcc/library.o
    by_gcc nvcc-library nvcc/host.o nvcc/libparts.a
    by_gcc libparts.so -shared -Wl,-soname,libparts.so -Wl,--whole-archive nvcc/libparts.a -Wl,--no-whole-archive
    by_gcc nvcc-shared nvcc/host.o "$out/libparts.so"
    by_gcc nvcc-dynamic nvcc/dynamic.o
    by_gcc nvcc-texture nvcc/texture.o nvcc/other.o
    by_gcc nvcc-virtual nvcc/virtual.o nvcc/shape.o
    archs=sm_80,sm_90
    for lto in "" -foffload-lto; do
        "$llvm/clang++" -O2 -fPIC --offload-new-driver -x cuda -nocudainc -nocudalib "--cuda-path=$cuda" -isystem "$headers" \
            "--offload-arch=$archs" -B links -fgpu-rdc $lto -c "$top/tests/nvcc/clang_kernels.cpp" -o nvcc/clang.o
        "$llvm/clang++" -O2 --offload-link $lto -B links "--cuda-path=$cuda" -Wl,--device-compiler=nvptx64-nvidia-cuda=-nogpulib \
            nvcc/clang.o nvcc/mixed.o nvcc/other.o "$out/libcudart.so.13" -Wl,-rpath,"\$ORIGIN" -o "$out/nvcc-mixed${lto:+-lto}"
    done
    for arch in 80 90; do "$offld" prune --keep "sm_$arch" "$out/nvcc-rdc" -o "$out/nvcc-pruned-sm_$arch" >/dev/null; done
    lto=("-gencode=arch=compute_80,code=lto_80" "-gencode=arch=compute_90,code=lto_90")
    units "${lto[@]}" main other library device square unused dynamic
    rm nvcc/libparts.a
    "$llvm/llvm-ar" rcs nvcc/libparts.a nvcc/unused.o nvcc/square.o nvcc/device.o nvcc/library.o
    by_gcc nvcc-lto nvcc/main.o nvcc/other.o
    by_gcc nvcc-lto-library nvcc/host.o nvcc/libparts.a
    by_gcc nvcc-lto-dynamic nvcc/dynamic.o
    for name in rdc late library shared dynamic texture virtual mixed mixed-lto lto lto-library lto-dynamic; do
        have "nvcc-$name" cuda sm_80 sm_90
    done
    have nvcc-pruned-sm_80 cuda sm_80
    have nvcc-pruned-sm_90 cuda sm_90
else
    lack nvcc "nvcc is needed (make setup-cuda)"
fi

# Only for the link: machines with an AMD GPU have the real library.
cc -shared -fPIC -Wl,-soname,libamdhip64.so.6 "$top/runtime-stubs/hip.c" -o libamdhip64.so.6
programs hip gfx90a gfx942
archs=gfx90a,gfx942
relocatable hip both
link hip hip-compressed --offload-compress "${parts[@]}"
have hip-compressed hip gfx90a gfx942

openmp() { # NAME TRIPLE ARCH
    local runtime=${llvm%/bin}/lib/$2/libompdevice.a
    if [ ! -e "$runtime" ]; then
        lack "$1" "no device runtime for OpenMP: $runtime (Debian's packages of LLVM have none)"
        return
    fi
    "$llvm/clang++" -O2 -fopenmp "--offload-arch=$3" ${cuda:+"--cuda-path=$cuda"} -B links "$here/openmp.cpp" -o "$out/$1"
    have "$1" "$1" "$3"
}
openmp openmp-nvptx nvptx64-nvidia-cuda sm_80
openmp openmp-amdgcn amdgcn-amd-amdhsa gfx90a

cp "$here/run.sh" "$out/"
chmod 755 "$out/run.sh"
