# shellcheck shell=bash
# The start of each script: a temporary directory that every exit removes, the program, and the shared functions. Sourced; needs $benches.
benches=${benches:?}

work=$(mktemp -d "${TMPDIR:-/tmp}/offld-bench.XXXXXX")
in_memory=''
trap 'rm -rf "$work" ${in_memory:+"$in_memory"}' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
offld=$(realpath -- "${OFFLD:-${CARGO_TARGET_DIR:-target}/release/offld}")
# shellcheck source=benches/parts/measure.sh
. "$benches/parts/measure.sh"
# shellcheck source=benches/parts/common.sh
. "$benches/parts/common.sh"
