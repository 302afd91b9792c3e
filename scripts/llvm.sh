#!/bin/sh
# Which LLVM `make build` and `make demo` take, on stdout: 22, but 19 on a machine that has 19 and not 22. LLVM=22 on make's line decides otherwise.
# LLVM_ROOT: where the folders llvm-22 and llvm-19 are, for tests.
set -eu
root=${LLVM_ROOT:-/usr/lib}
has() { [ -x "$root/llvm-$1/bin/llvm-config" ] || [ -x "$root/llvm-$1/bin/clang" ]; }
if ! has 22 && has 19; then
    echo 19
else
    echo 22
fi
