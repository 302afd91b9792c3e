#!/usr/bin/env bash
# Compares offld with the installed LLVM 22 tools and with the minimum cost of the work (the floor), as a Markdown table.
# usage: compare.sh [--check] [--write[=FILE]] [GROUP...]
#   groups: plain zaxpy many members amdgcn units nvcc lto images late huge containers size edit (default: all)
#   --check: fails if a row is beyond its bound (bounds.txt)
#   --write: writes the table, the machine and notes.md into FILE (default: benches/RESULTS.md, only for all groups)
# RUNS: the number of runs (default: 15); PAIRED_RUNS: for rows with a bound in milliseconds over the floor (default: 60);
# LARGE_RUNS: for rows that take seconds (default: 5); OFFLD: the program (default: target/release/offld)
# HIP_UNITS: the number of HIP translation units (default: 100); HIP_UNIT_RUNS: the number of runs of their links (default: 3)
# TMPDIR: the working directory, with 15 GiB of free space for all groups; BOUNDS: another bounds.txt
set -euo pipefail
from=$PWD benches=$(cd "$(dirname "$0")" && pwd)
cd "$benches/.."

command_line="benches/compare.sh${*:+ $*}"
all=(plain zaxpy many members amdgcn units nvcc lto images late huge containers size edit)
check='' write='' groups=()
usage() {
    sed -n 's/^# \(usage\|  \)/\1/p' "$0" >&2
    exit 2
}
for arg; do
    case "$arg" in
        --check) check=1 ;;
        --write) write=$benches/RESULTS.md ;;
        --write=?*) write=$(cd "$from" && realpath -- "${arg#*=}") ;;
        *)
            [[ " ${all[*]} " = *" $arg "* ]] || usage
            groups+=("$arg")
            ;;
    esac
done
# RESULTS.md must have all groups.
[ ${#groups[@]} = 0 ] || [ "$write" != "$benches/RESULTS.md" ] || usage
[ ${#groups[@]} != 0 ] || groups=("${all[@]}")

# shellcheck source=benches/parts/begin.sh
. "$benches/parts/begin.sh"
# shellcheck source=benches/parts/machine.sh
. "$benches/parts/machine.sh"
# shellcheck source=benches/parts/links.sh
. "$benches/parts/links.sh"
# shellcheck source=benches/parts/amdgcn.sh
. "$benches/parts/amdgcn.sh"
# shellcheck source=benches/parts/units.sh
. "$benches/parts/units.sh"
# shellcheck source=benches/parts/nvcc.sh
. "$benches/parts/nvcc.sh"
# shellcheck source=benches/parts/lto.sh
. "$benches/parts/lto.sh"
# shellcheck source=benches/parts/images.sh
. "$benches/parts/images.sh"
# shellcheck source=benches/parts/containers.sh
. "$benches/parts/containers.sh"
# shellcheck source=benches/parts/size.sh
. "$benches/parts/size.sh"
# shellcheck source=benches/parts/edit.sh
. "$benches/parts/edit.sh"
need_tools
settle_caches
clean_environment
"$offld" links "$links" >/dev/null
cd "$work"

table_heading | tee table
for group in "${groups[@]}"; do
    new_cache "$group"
    "group_$group"
done
echo
program_size > program-size
cat program-size
table_legend
left_out_rows
if [ -n "$write" ]; then
    results > results.md
    cp results.md "$write"
fi
finish "$check"
