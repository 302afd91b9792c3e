#!/usr/bin/env bash
# Installs the packages for building, testing, linting and benchmarking offld, on Debian and Ubuntu. With --demo, only those for the build
# and `make demo`, all of which are required.
# usage: setup.sh [--demo] [STAMP]      LLVM=19: with --demo, that release instead of 22 (scripts/llvm.sh)
set -eu
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$(dirname "$0")/packages.sh"

build=(
    # for host code: C and C++ compilers, GNU ld, make
    g++ make binutils
    # LLVM 22, linked into offld statically, with the dependencies of its libraries
    llvm-22-dev libpolly-22-dev libzstd-dev zlib1g-dev libxml2-dev
    # compiler and linker for programs, and an OpenMP runtime that offloads to the CPU
    clang-22 lld-22 libomp-22-dev liboffload-22-dev
)
tests=(
    # LLVM's tools, for comparison
    clang-tools-22
    # sanitizers and profiles, for linked programs
    libclang-rt-22-dev
    # Fortran programs with device code
    flang-22
    # writers of formats that `offld inspect` reads, in addition to tar, gzip and dpkg-deb
    xz-utils zstd bzip2
    # lint, benchmarks, and a tracer for the programs that a link starts
    shellcheck jq hyperfine time strace
    # another host linker for tests
    mold
    # file systems with unreliable timestamps: images, and FUSE programs for them and for other directories
    squashfs-tools squashfuse bindfs e2fsprogs
    # tools that change or check finished programs
    patchelf elfutils gdb
    # memory checks of C programs that use liboffld
    valgrind
    # another host architecture: linker and emulator
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    # a browser for tests of `offld size --html` and of the book
    chromium fonts-dejavu-core
    # the build systems of docs/guides/build-systems.md, and pip, which downloads a newer CMake
    cmake ninja-build meson libtool automake autoconf pkgconf python3-pip
)
# Tests need CMake's linker types, which came with 3.29. If the system's CMake is older (Debian 12), downloads a wheel into target/cmake.
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
# Downloads a wheel with device code for the tests of `offld inspect`: 3.5 MB, the x86-64 one on every host.
cuda_runtime_wheel=12.9.79
fetch_wheel() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/wheels
    if compgen -G "$folder/*-$cuda_runtime_wheel-*.whl" >/dev/null; then return; fi
    say "downloading the wheel of NVIDIA's CUDA runtime $cuda_runtime_wheel"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --platform manylinux2014_x86_64 --dest "$folder" \
        "nvidia-cuda-runtime-cu12==$cuda_runtime_wheel" >&2 || shortfall "could not download the PyPI wheel of CUDA's runtime $cuda_runtime_wheel"
}
# Installs mypy, for the types of the Python module, into target/mypy.
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
# Installs wild, another host linker for tests, into target/wild: with cargo, because no distribution packages it. It takes 3.5 minutes of
# CPU time, once.
wild_version=0.10.0 wild_rust=1.94
install_wild() {
    local folder rust
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/wild
    if [ -x "$folder/bin/ld.wild" ] && grep -qs "\"wild-linker $wild_version " "$folder/.crates.toml"; then return; fi
    rust=$(cargo --version | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    if [ "$(printf '%s\n' "$wild_rust" "$rust" | sort -V | head -n 1)" != "$wild_rust" ]; then
        say "skipping the linker wild, which needs Rust $wild_rust (found: $rust); its tests are skipped"
        return
    fi
    say "compiling the linker wild $wild_version"
    # In another directory, so that offld's settings in .cargo do not apply.
    (cd / && CARGO_TARGET_DIR=$folder/build cargo install -q --locked --root "$folder" --version "$wild_version" wild-linker >&2) ||
        shortfall "could not install wild-linker $wild_version (cargo install)"
    rm -rf "$folder/build"
    # clang's -fuse-ld=wild looks for this name.
    ln -sf wild "$folder/bin/ld.wild"
}
# Downloads a Debian package with device code for the tests of `offld inspect`: 8 MB, HIP, in Debian 12 and 13.
fetch_package() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/target/debs
    if compgen -G "$folder/librocrand1_*.deb" >/dev/null; then return; fi
    say 'downloading the Debian package librocrand1'
    mkdir -p "$folder"
    # apt warns that the unprivileged user _apt cannot write to this directory, so its output is dropped.
    (cd "$folder" && apt-get download -qq librocrand1 >/dev/null 2>&1) || shortfall 'could not download the Debian package librocrand1 (apt-get download)'
}
if [ "${1:-}" = --demo ]; then
    shift
    NEEDS_ALL=1
    if [ "${LLVM:-22}" != 22 ]; then
        say "using LLVM $LLVM, because 22 is not installed (make demo LLVM=22 installs it)"
        build=("${build[@]//-22/-$LLVM}")
        # Up to 19, the offloading runtime is in the libomp package.
        [ "$LLVM" -gt 19 ] || build=("${build[@]/#liboffload-*/}")
    fi
    # shellcheck disable=SC2068 # removed packages are empty strings, which word splitting drops
    install_packages ${build[@]}
else
    install_packages "${build[@]}" "${tests[@]}"
    # gold, another host linker: Debian 12 has it in binutils, Debian 13 in a separate package.
    command -v ld.gold >/dev/null || install_packages binutils-gold
    # Servers that the remote cache tests start, and openssl for the certificate of one of them.
    install_servers redis-server nginx-light openssl
    fetch_cmake
    fetch_wheel
    fetch_mypy
    fetch_package
fi

if ! command -v cargo >/dev/null; then
    shortfall 'cargo not found in PATH. Install Rust 1.90 or later from https://rustup.rs:'
    command -v curl >/dev/null || say '    apt-get install -y --no-install-recommends curl ca-certificates    # as root'
    say "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
elif [ -z "${NEEDS_ALL:-}" ]; then
    install_wild
fi
finish "${1:-}"
