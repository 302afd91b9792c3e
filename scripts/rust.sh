#!/bin/sh
# Whether the Rust that cargo uses is new enough.  usage: rust.sh VERSION [CARGO]
set -eu
wanted=$1
cargo=${2:-cargo}
have=$("$cargo" --version 2>/dev/null | sed -n 's/^cargo \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
# A cargo that does not say its version is believed: it says by itself what it cannot build.
[ -n "$have" ] || exit 0
if [ "${have%.*}" -lt "${wanted%.*}" ] || { [ "${have%.*}" -eq "${wanted%.*}" ] && [ "${have#*.}" -lt "${wanted#*.}" ]; }; then
    path=$(command -v "$cargo" || echo "$cargo")
    echo "offld needs Rust $wanted or later, and $path is of Rust $have." >&2
    echo "Get it from https://rustup.rs, or by \`rustup update\`; then \`. ~/.cargo/env\` puts it before others in PATH." >&2
    exit 1
fi
