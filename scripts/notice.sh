#!/usr/bin/env bash
# Writes NOTICE: which crates are in the programs and in the Python module, and their licences. Needs cargo-about (`cargo install --locked --features cli
# cargo-about`), and no network but for the crates. --check: an error if a crate that is linked in is not named in NOTICE; needs cargo only.
# usage: notice.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
if [ "${1-}" = --check ]; then
    linked=$("$cargo" tree --workspace --locked --all-features --edges normal --prefix none --format '{p}' | sed 's/ .*//' | sort -u | grep -vx offld-python)
    for crate in $linked; do
        grep -qE "^  $crate( - |\$)" NOTICE || { echo "NOTICE does not name the crate $crate: run scripts/notice.sh and commit the result" >&2; exit 1; }
    done
    exit
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
"$cargo" fetch --locked --quiet
"$cargo" about generate --workspace --all-features --frozen --fail scripts/notice.hbs > "$new"
cat "$new" > NOTICE
