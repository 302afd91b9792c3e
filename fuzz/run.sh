#!/usr/bin/env bash
# Runs the fuzz targets one after the other; stops at the first finding.
# usage: run.sh SECONDS [TARGET…]     New inputs go to fuzz/work/TARGET, findings to fuzz/artifacts/TARGET; fuzz/corpus is not changed.
set -eu
cd "$(dirname "$0")"
# The backtrace of a panic takes more memory than the limit.
export RUST_BACKTRACE=0
seconds=${1:?usage: run.sh SECONDS [TARGET…]}
shift
[ $# != 0 ] || mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir .)
[ $# = 0 ] || targets=("$@")
for target in "${targets[@]}"; do
    mkdir -p "work/$target" "corpus/$target"
    echo "== $target, $seconds s"
    # No sanitizer, because there is no unsafe code, and the targets limit the heap themselves. Some targets change the directory.
    cargo +nightly fuzz build --fuzz-dir . --sanitizer none "$target"
    timeout $((seconds + 60)) cargo +nightly fuzz run --fuzz-dir . --sanitizer none "$target" "$PWD/work/$target" "$PWD/corpus/$target" -- \
        "-max_total_time=$seconds" -timeout=1 -rss_limit_mb=1024 -max_len=8192 -close_fd_mask=2 -dict=magics.dict < /dev/null
done
