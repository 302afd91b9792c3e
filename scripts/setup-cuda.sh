#!/usr/bin/env bash
# NVIDIA's tools for device code (ptxas, nvlink, fatbinary, cuobjdump, nvdisasm) from PyPI, and a list of where they are.
# usage: setup-cuda.sh [STAMP]      OFFLD_CUDA: where to unpack (default target/cuda; no spaces in it)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

version=13.5.37 # the newest that was tried; any 13 will do
root=${OFFLD_CUDA:-$here/../target/cuda}
mkdir -p "$root"
root=$(cd "$root" && pwd)
cuda=$root/nvidia/cu13
before=$root/before-22

# One wheel has ptxas, nvlink, fatbinary and nvcc, the other two have a tool each. (nvidia-cuda-nvcc-cu12 has ptxas only.)
fetch() {
    local pip=(python3 -m pip)
    [ -x "$cuda/bin/fatbinary" ] && [ -x "$cuda/bin/cuobjdump" ] && [ -x "$cuda/bin/nvdisasm" ] && return
    if ! "${pip[@]}" --version >/dev/null 2>&1; then
        shortfall 'no python3 with pip here; what these PyPI wheels hold is needed: nvidia-cuda-nvcc nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm'
        return
    fi
    say "downloading NVIDIA's tools, version $version"
    "${pip[@]}" install -q --root-user-action=ignore --disable-pip-version-check --no-deps --upgrade --target "$root" \
        "nvidia-cuda-nvcc==$version" "nvidia-cuda-cuobjdump==$version" "nvidia-cuda-nvdisasm==$version" >&2 ||
        shortfall "could not download the PyPI wheels of version $version (pip's own message stands above)"
}
fetch

# clang looks for CUDA_VERSION here and takes a folder without it for CUDA 7, which has no sm_80. The headers are of no use to it
# otherwise. 11.8 is the one version that has sm_90, that clang 16 to 22 know, and whose PTX every later ptxas reads.
mkdir -p "$cuda/include" "$before/bin" "$before/include"
echo '#define CUDA_VERSION 11080' | tee "$before/include/cuda.h" > "$cuda/include/cuda.h"

# Clang and its wrapper up to 21 pass fatbinary an option that version 13 no longer has. For them: the same tools, this one option said
# in today's words.
for tool in ptxas nvlink; do ln -sfn "$cuda/bin/$tool" "$before/bin/$tool"; done
cat > "$before/bin/fatbinary" <<'EOF'
#!/bin/bash
# --image=profile=sm_80,file=F  (compute_80: PTX)   ->   --image3=kind=elf,sm=80,file=F
words=()
for word; do
    if [[ $word =~ ^--image=profile=(sm|compute)_([^,]*),file=(.*)$ ]]; then
        kind=elf
        [ "${BASH_REMATCH[1]}" = compute ] && kind=ptx
        word=--image3=kind=$kind,sm=${BASH_REMATCH[2]},file=${BASH_REMATCH[3]}
    fi
    words+=("$word")
done
exec "$(dirname "$(readlink -f "$(dirname "$0")/ptxas")")/fatbinary" "${words[@]}"
EOF
chmod +x "$before/bin/fatbinary"

# From here on nothing is changed: the list says what is really there.
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
else
    shortfall "these do not run, and the tests of CUDA cannot: ${missing[*]}"
fi
mv "$list.new" "$list"
echo "written: $list"
finish "${1:-}"
