#!/usr/bin/env bash
# What building offld, its tests, its lint and its benchmarks need, on Debian and Ubuntu; with --demo, what building and `make demo` need, all of it.
# usage: setup.sh [--demo] [STAMP]      LLVM=19: with --demo, that release in the place of 22 (scripts/llvm.sh)
set -eu
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$(dirname "$0")/packages.sh"

build=(
    # the host side: C and C++ compiler, GNU ld, make
    g++ make binutils
    # LLVM 22, which offld is linked against (statically: all its libraries' own needs too)
    llvm-22-dev libpolly-22-dev libzstd-dev zlib1g-dev libxml2-dev
    # what programs are compiled and linked with, and an OpenMP runtime whose device is the host
    clang-22 lld-22 libomp-22-dev liboffload-22-dev
)
tests=(
    # the tools that offld is compared with
    clang-tools-22
    # the programs whose files `offld inspect` opens, beside tar, gzip and dpkg-deb
    xz-utils zstd bzip2
    # lint and bench, and what shows which programs a link starts
    shellcheck jq hyperfine time strace
    # one of the host linkers that tests link with
    mold
    # tools that change or check finished programs
    patchelf elfutils gdb
    # what finds errors of memory in C programs that use liboffld
    valgrind
    # another kind of host: what links programs for it, and what runs them
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    # the browser that the page of `offld size --html` is tested in
    chromium fonts-dejavu-core
    # the build systems that there are recipes for (docs/recipes.md, docs/build-systems.md), and what fetches a newer CMake
    cmake ninja-build meson libtool automake autoconf pkgconf python3-pip
)
# CMake's linker types came with 3.29, which Debian 12 does not have: the wheel of a newer one, into target/cmake, if the system's is older.
cmake_wheel=4.4.4
fetch_cmake() {
    local folder oldest
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/cmake
    oldest=$(printf '%s\n' 3.29 "$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')" | sort -V | head -n 1)
    if [ "$oldest" = 3.29 ] || [ -x "$folder/cmake/data/bin/cmake" ]; then return; fi
    say "downloading CMake $cmake_wheel"
    python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --upgrade --target "$folder" \
        "cmake==$cmake_wheel" >&2 || shortfall "could not download the PyPI wheel of CMake $cmake_wheel"
}
# A wheel with device code, as PyPI has it, which `offld inspect` is tested with: 3.5 MB, for x86-64 hosts wherever it is read.
cuda_runtime_wheel=12.9.79
fetch_wheel() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/wheels
    if compgen -G "$folder/*-$cuda_runtime_wheel-*.whl" >/dev/null; then return; fi
    say "downloading the wheel of NVIDIA's CUDA runtime $cuda_runtime_wheel"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --platform manylinux2014_x86_64 --dest "$folder" \
        "nvidia-cuda-runtime-cu12==$cuda_runtime_wheel" >&2 || shortfall "could not download the PyPI wheel of CUDA's runtime $cuda_runtime_wheel"
}
# What checks the types of the Python module, into target/mypy.
mypy_wheel=2.4.1
fetch_mypy() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/mypy
    if compgen -G "$folder/mypy-$mypy_wheel.dist-info" >/dev/null; then return; fi
    say "downloading mypy $mypy_wheel"
    rm -rf "$folder"
    python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --only-binary=:all: --target "$folder" "mypy==$mypy_wheel" >&2 ||
        shortfall "could not download the PyPI wheel of mypy $mypy_wheel"
}
# A Debian package with device code, which `offld inspect` is tested with: 8 MB of HIP code in Debian 12 and 13.
fetch_package() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/debs
    if compgen -G "$folder/librocrand1_*.deb" >/dev/null; then return; fi
    say 'downloading the Debian package librocrand1'
    mkdir -p "$folder"
    # As it is downloaded by the user, apt warns that it could not use one with fewer rights.
    (cd "$folder" && apt-get download -qq librocrand1 >/dev/null 2>&1) || shortfall 'could not download the Debian package librocrand1 (apt-get download)'
}
if [ "${1:-}" = --demo ]; then
    shift
    NEEDS_ALL=1
    if [ "${LLVM:-22}" != 22 ]; then
        say "LLVM $LLVM is here and 22 is not: taking that (make demo LLVM=22 installs 22)"
        build=("${build[@]//-22/-$LLVM}")
        # Up to 19 the offloading runtime is in libomp's package.
        [ "$LLVM" -gt 19 ] || build=("${build[@]/#liboffload-*/}")
    fi
    # shellcheck disable=SC2068 # what was taken out of the list is an empty word
    install_packages ${build[@]}
else
    install_packages "${build[@]}" "${tests[@]}"
    # Servers that tests of the shared cache start for themselves, and what makes a certificate for one of them.
    install_servers redis-server nginx-light openssl
    fetch_cmake
    fetch_wheel
    fetch_mypy
    fetch_package
fi

if ! command -v cargo >/dev/null; then
    shortfall 'no Rust here (cargo is not in PATH). Get version 1.90 or later from https://rustup.rs:'
    command -v curl >/dev/null || say '    apt-get install -y --no-install-recommends curl ca-certificates    # as root'
    say "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
fi
finish "${1:-}"
