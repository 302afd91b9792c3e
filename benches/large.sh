#!/usr/bin/env bash
# Measures the peak memory of the container tools with code objects of gigabytes; needs some 10 GiB of disk.
# usage: large.sh [--check]     --check: fails if a tool exceeds its limit
# SIZE: the size of a code object in MiB (default: 2048); OFFLD: the program (default: target/release/offld)
set -euo pipefail
benches=$(cd "$(dirname "$0")" && pwd)
cd "$benches/.."
case "${1:-}" in
    --check | '') ;;
    *) sed -n 's/^# \(usage.*\)/\1/p' "$0" >&2; exit 2 ;;
esac
# shellcheck source=benches/parts/begin.sh
. "$benches/parts/begin.sh"
need_tools
clean_environment
"$offld" links "$links" >/dev/null
cd "$work"

limit() { # TITLE MIB TOOL ARGUMENTS
    local mib beyond=
    mib=$(peak "$links/$3 $4")
    if [ "$mib" -ge "$2" ]; then
        beyond='**too much memory**'
        misses=$((misses + 1))
    fi
    echo "| $1 | $mib MiB | $2 MiB | $beyond |"
}

SIZE=${SIZE:-2048}
code 0 "$SIZE" one
ln one two # for a bundler, the same code twice is as large as different code
: > host
targets=-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906,hip-amdgcn-amd-amdhsa--gfx90a
bundle="-type=bc $targets -input=host -input=one -input=two -output=out"
unbundle='-type=bc -unbundle -output=part -input=bundle -targets=hip-amdgcn-amd-amdhsa--'
bundler=clang-offload-bundler packager=llvm-offload-binary wrapper=llvm-offload-wrapper
wrap='--kind=hip --triple=x86_64-unknown-linux-gnu one -o'

echo "| code objects of $SIZE MiB | peak memory | at most | |"
echo '|---|--:|--:|---|'
limit 'bundle two' 64 $bundler "$bundle"
mv out bundle
limit 'list' 64 $bundler '-type=bc -list -input=bundle'
limit 'unbundle one' 64 $bundler "${unbundle}gfx90a"
rm bundle
limit 'bundle one, compressed' 400 $bundler "-compress ${bundle/two/host}"
mv out bundle
limit 'list compressed' 400 $bundler '-type=bc -list -input=bundle'
limit 'unbundle compressed' 400 $bundler "${unbundle}gfx906"
limit 'pack' 64 $packager '-o out --image=file=one,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip'
limit 'extract' 64 $packager 'out --image=file=part,arch=gfx906'
limit 'wrap' 64 $wrapper "$wrap out.bc"
limit 'wrap as an object' 64 $wrapper "$wrap out.o"
finish "${1:-}"
