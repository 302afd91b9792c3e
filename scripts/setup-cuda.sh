#!/usr/bin/env bash
# Installs NVIDIA's device code tools (ptxas, nvlink, fatbinary, cuobjdump, nvdisasm) and its compiler nvcc from PyPI, and writes a list of
# their paths.
# usage: setup-cuda.sh [STAMP]      OFFLD_CUDA: the target directory (default: target/cuda), without spaces
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

version=13.5.37 # the newest tested version; any 13 works
root=${OFFLD_CUDA:-$here/../target/cuda}
mkdir -p "$root"
root=$(cd "$root" && pwd)
cuda=$root/nvidia/cu13
before=$root/before-22

# One wheel has ptxas, nvlink, fatbinary and nvcc; the other two have one tool each. (nvidia-cuda-nvcc-cu12 has only ptxas.)
fetch() {
    local pip=(python3 -m pip)
    [ -x "$cuda/bin/fatbinary" ] && [ -x "$cuda/bin/cuobjdump" ] && [ -x "$cuda/bin/nvdisasm" ] && return
    if ! "${pip[@]}" --version >/dev/null 2>&1; then
        shortfall 'python3 with pip not found: cannot install the PyPI wheels nvidia-cuda-nvcc nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm'
        return
    fi
    say "downloading NVIDIA's tools, version $version"
    "${pip[@]}" install -q --root-user-action=ignore --disable-pip-version-check --no-deps --upgrade --target "$root" \
        "nvidia-cuda-nvcc==$version" "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version" >&2 ||
        shortfall "could not download the PyPI wheels of version $version (see pip's message above)"
}
fetch

# nvcc with its headers and libraries, apart from the tools: clang must not find these headers.
compiler=$root/nvcc/nvidia/cu13
fetch_nvcc() {
    [ -x "$compiler/bin/nvcc" ] && [ -d "$compiler/nvvm" ] && [ -f "$compiler/include/cuda_runtime.h" ] && [ -d "$compiler/include/cccl" ] && return
    say "downloading nvcc, version $version (350 MB unpacked)"
    python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --upgrade --only-binary=:all: --target "$root/nvcc" \
        "nvidia-cuda-nvcc==$version" "nvidia-nvvm==$version" "nvidia-cuda-crt==$version" "nvidia-cuda-runtime==$version" \
        nvidia-cuda-cccl==13.3.5.0.6 >&2 || shortfall "could not download the PyPI wheels of nvcc $version (see pip's message above)"
}
fetch_nvcc
# For link-time optimization, nvlink loads the library from here. The wheel installs it in lib.
if [ -f "$compiler/lib/libnvvm.so.4" ] && [ ! -e "$compiler/nvvm/lib64/libnvvm.so" ]; then
    mkdir -p "$compiler/nvvm/lib64"
    ln -s ../../lib/libnvvm.so.4 "$compiler/nvvm/lib64/libnvvm.so"
fi

# clang reads CUDA_VERSION from this header and treats a directory without it as CUDA 7, which lacks sm_80. It needs no other header.
# Only version 11.8 has sm_90, is known to clang 16 to 22, and has PTX that every later ptxas reads.
mkdir -p "$cuda/include" "$before/bin" "$before/include"
echo '#define CUDA_VERSION 11080' | tee "$before/include/cuda.h" > "$cuda/include/cuda.h"

# clang and its wrapper up to 21 pass fatbinary an option that version 13 no longer has. This directory has the same tools for them, with
# a fatbinary that translates the option.
for tool in ptxas nvlink; do ln -sfn "$cuda/bin/$tool" "$before/bin/$tool"; done
cat > "$before/bin/fatbinary" <<'EOF'
#!/bin/bash
# --image=profile=sm_80,file=F  (compute_80: PTX)   ->   --image3=kind=elf,sm=80,file=F
args=()
for arg; do
    if [[ $arg =~ ^--image=profile=(sm|compute)_([^,]*),file=(.*)$ ]]; then
        kind=elf
        [ "${BASH_REMATCH[1]}" = compute ] && kind=ptx
        arg=--image3=kind=$kind,sm=${BASH_REMATCH[2]},file=${BASH_REMATCH[3]}
    fi
    args+=("$arg")
done
exec "$(dirname "$(readlink -f "$(dirname "$0")/ptxas")")/fatbinary" "${args[@]}"
EOF
chmod +x "$before/bin/fatbinary"

# The rest only reads: the list names the tools that really run.
list=$root/cuda.txt
missing=()
for tool in ptxas nvlink fatbinary cuobjdump nvdisasm; do
    if "$cuda/bin/$tool" --version >/dev/null 2>&1; then
        printf '%-10s %s\n' "$tool" "$cuda/bin/$tool"
    else
        printf '%-10s NO\n' "$tool"
        missing+=("$tool")
    fi
done
: > "$list.new"
if [ "${#missing[@]}" = 0 ]; then
    echo "cuda path=$cuda before22=$before" > "$list.new"
    if "$compiler/bin/nvcc" --version >/dev/null 2>&1; then echo "nvcc path=$compiler" >> "$list.new"; fi
else
    shortfall "CUDA tests are skipped, because these tools do not run: ${missing[*]}"
fi
mv "$list.new" "$list"
echo "written: $list"
finish "${1:-}"
