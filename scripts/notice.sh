#!/usr/bin/env bash
# Writes NOTICE: the crates in the programs and in the Python module, with their licences. Needs cargo-about (`cargo install --locked
# --features cli cargo-about`) and, for missing crates, the network. --check: fails if NOTICE lacks a linked crate; needs only cargo.
# usage: notice.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
if [ "${1-}" = --check ]; then
    linked=$("$cargo" tree --workspace --locked --all-features --edges normal --prefix none --format '{p}' | sed 's/ .*//' | sort -u | grep -vxE 'offld(-python|-system)?|offload-(files|formats)')
    for crate in $linked; do
        grep -qE "^  $crate( - |\$)" NOTICE || { echo "NOTICE lacks the crate $crate: run scripts/notice.sh and commit the result" >&2; exit 1; }
    done
    exit
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
"$cargo" fetch --locked --quiet
"$cargo" about generate --workspace --all-features --frozen --fail scripts/notice.hbs > "$new"
cat "$new" > NOTICE
