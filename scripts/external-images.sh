#!/usr/bin/env bash
# Makes the LLVM IR of the code that loads images from files beside a program: external-images.sh > src/bin/offld-llvm/external_images/loader.ll
# clang 19 makes it, because LLVM 19 is the oldest that offld-llvm can contain. Without the attributes and the metadata that name x86-64, the
# text fits every 64-bit little-endian host.
set -euo pipefail
cd "$(dirname "$0")/.."
source=src/bin/offld-llvm/external_images/loader.c
clang=${CLANG19:-clang-19}
echo "; Made by scripts/external-images.sh from $(basename "$source"): do not edit."
"$clang" --target=x86_64-unknown-linux-gnu -D_GNU_SOURCE -Wall -Wextra -Werror -Os -fPIC -S -emit-llvm -o - \
  -fno-stack-protector -fno-unwind-tables -fno-asynchronous-unwind-tables -fno-strict-aliasing -fno-vectorize -fno-slp-vectorize "$source" |
  sed -E -e '/^; ModuleID|^source_filename|^target |^!/d' -e 's/, !llvm\.loop ![0-9]+//' -e '/^attributes/s/ "[^"]*"(="[^"]*")?//g' -e '/^; Function Attrs/d' |
  cat -s
