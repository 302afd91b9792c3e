#!/bin/sh
# Checks that cargo's Rust is new enough.  usage: rust.sh VERSION [CARGO]
set -eu
wanted=$1
cargo=${2:-cargo}
have=$("$cargo" --version 2>/dev/null | sed -n 's/^cargo \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
# A cargo without a readable version passes: its build reports what it cannot compile.
[ -n "$have" ] || exit 0
if [ "${have%.*}" -lt "${wanted%.*}" ] || { [ "${have%.*}" -eq "${wanted%.*}" ] && [ "${have#*.}" -lt "${wanted#*.}" ]; }; then
    path=$(command -v "$cargo" || echo "$cargo")
    echo "offld needs Rust $wanted or later, but $path is Rust $have." >&2
    echo "Install it from https://rustup.rs, or run \`rustup update\`. Then run \`. ~/.cargo/env\` to put it first in PATH." >&2
    exit 1
fi
