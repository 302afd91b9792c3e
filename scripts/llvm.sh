#!/bin/sh
# Prints the LLVM release for `make build` and `make demo`: 22, or 19 on a machine that has 19 and not 22. `make LLVM=22` overrides it.
# LLVM_ROOT: the parent directory of llvm-22 and llvm-19, for tests.
set -eu
root=${LLVM_ROOT:-/usr/lib}
has() { [ -x "$root/llvm-$1/bin/llvm-config" ] || [ -x "$root/llvm-$1/bin/clang" ]; }
if ! has 22 && has 19; then
    echo 19
else
    echo 22
fi
