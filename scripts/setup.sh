#!/usr/bin/env bash
# What building offld, its tests, its lint and its benchmarks need, on Debian and Ubuntu.  usage: setup.sh [STAMP]
set -eu
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$(dirname "$0")/packages.sh"

packages=(
    # the host side: C and C++ compiler, GNU ld, make
    g++ make binutils
    # LLVM 22, which offld is linked against (statically: all its libraries' own needs too)
    llvm-22-dev libpolly-22-dev libzstd-dev zlib1g-dev libxml2-dev
    # the tools it is compared with, and an OpenMP runtime whose device is the host
    clang-22 clang-tools-22 lld-22 libomp-22-dev liboffload-22-dev
    # lint and bench, and what shows which programs a link starts
    shellcheck jq hyperfine time strace
    # one of the host linkers that tests link with
    mold
)
install_packages "${packages[@]}"
# Servers that tests of the shared cache start for themselves, and what makes a certificate for one of them.
install_servers redis-server nginx-light openssl

if ! command -v cargo >/dev/null; then
    shortfall 'no Rust here (cargo is not in PATH). Get it from https://rustup.rs:'
    say "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . \"\$HOME/.cargo/env\""
fi
finish "${1:-}"
