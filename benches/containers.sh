#!/usr/bin/env bash
# The container tools against those of LLVM 22, on code objects of hundreds of megabytes: times, and peak memory.
# usage: containers.sh [--check] [--large]     --check: fail when a tool is slower than LLVM's by more than noise, or takes more memory
#                                              than it may      --large: memory only, ours only, with a code object of 2 GiB
# SIZE: MiB of a code object (default 256, 2048 with --large); ROUNDS, RUNS: how often (default 2 rounds of 2 runs)
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=benches/measure.sh
. benches/measure.sh

check='' large=''
for word; do
    case "$word" in
        --check) check=1 ;;
        --large) large=1 ;;
        *) sed -n 's/^# \(usage.*\)/\1/p' "$0" >&2; exit 2 ;;
    esac
done
llvm=/usr/lib/llvm-22
OFFLD=${OFFLD:-${CARGO_TARGET_DIR:-target}/release/offld}
ROUNDS=${ROUNDS:-2} RUNS=${RUNS:-2} WARMUP=${WARMUP:-1}
SIZE=${SIZE:-$([ -n "$large" ] && echo 2048 || echo 256)}
for tool in hyperfine /usr/bin/time "$llvm/bin/clang-offload-bundler" "$llvm/bin/llvm-offload-binary" "$llvm/bin/llvm-offload-wrapper" "$OFFLD"; do
    command -v "$tool" >/dev/null || { echo "bench: $tool is missing (make setup build)" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/offld-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$OFFLD" links "$work/links" >/dev/null
export TMPDIR=$work

# Real code compresses as code objects do; what the libraries of LLVM do not fill is filled by their start again.
code() { # SKIP-MIB FILE
    local libraries=("$llvm"/lib/libLLVM*.a)
    # shellcheck disable=SC2016
    { while :; do cat "${libraries[@]}" || exit 0; done; } 2>/dev/null | tail -c "+$(($1 * 1048576 + 1))" | head -c "${SIZE}M" > "$2" || :
    [ "$(stat -c %s "$2")" = $((SIZE * 1048576)) ] || { echo "bench: no $SIZE MiB of code from $llvm/lib" >&2; exit 1; }
}
code 0 "$work/one"
: > "$work/host"

targets=-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906,hip-amdgcn-amd-amdhsa--gfx90a
tool() { # THEIRS|OURS NAME: how the two are run
    if [ "$1" = theirs ]; then echo "$llvm/bin/$2"; else echo "$work/links/$2"; fi
}
bundler() { echo "$(tool "$1" clang-offload-bundler) ${*:2}"; }
packager() { echo "$(tool "$1" llvm-offload-binary) ${*:2}"; }
wrapper() { echo "$(tool "$1" llvm-offload-wrapper) ${*:2}"; }
bundle="-type=bc $targets -input=$work/host -input=$work/one -input=$work/two -output=$work/out"
unbundle="-type=bc -unbundle -targets=hip-amdgcn-amd-amdhsa--gfx90a -output=$work/part"
pack="-o $work/out --image=file=$work/one,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip"
second=--image=file=$work/two,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip
extract="--image=file=$work/part,arch=gfx906"
wrap="--kind=hip --triple=x86_64-unknown-linux-gnu -o $work/out.bc $work/one"

if [ -n "$large" ]; then
    ln "$work/one" "$work/two" # the same code twice: as large for a bundler as any other
    limit() { # TITLE MIB COMMAND
        local mib beyond=
        mib=$(peak "$3")
        if [ "$mib" -ge "$2" ]; then
            beyond='  BEYOND THE LIMIT'
            failures=$((failures + 1))
        fi
        printf '%-46s %8s MiB   of %s%s\n' "$1" "$mib" "$2" "$beyond"
    }
    printf 'peak memory, code objects of %s MiB\n' "$SIZE"
    limit 'bundle two' 64 "$(bundler ours "$bundle")"
    mv "$work/out" "$work/bundle"
    limit 'list' 64 "$(bundler ours -type=bc -list "-input=$work/bundle")"
    limit 'unbundle one' 64 "$(bundler ours "$unbundle" "-input=$work/bundle")"
    rm "$work/bundle"
    limit 'bundle one, compressed' 400 "$(bundler ours -compress "${bundle/two/host}")"
    mv "$work/out" "$work/bundle"
    limit 'list compressed' 400 "$(bundler ours -type=bc -list "-input=$work/bundle")"
    limit 'unbundle compressed' 400 "$(bundler ours "${unbundle/gfx90a/gfx906}" "-input=$work/bundle")"
    limit 'pack' 64 "$(packager ours "$pack")"
    limit 'extract' 64 "$(packager ours "$work/out" "$extract")"
    limit 'wrap' 64 "$(wrapper ours "$wrap")"
    limit 'wrap as an object' 64 "$(wrapper ours "${wrap/out.bc/out.o}")"
    finish "$check"
    exit
fi

code "$SIZE" "$work/two"
both() { # TITLE MIB THEIRS OURS [RATIO]: time and memory of one thing done
    race "$1" "$3" "$4" "ratio ${5:-1.1}"
    memory '    peak memory' "$3" "$4" "$2"
}
heading "code objects of $SIZE MiB" "LLVM's" offld extra ratio
both 'bundle two' 64 "$(bundler theirs "$bundle")" "$(bundler ours "$bundle")"
mv "$work/out" "$work/bundle"
list="-type=bc -list -input=$work/bundle"
both 'list' 64 "$(bundler theirs "$list")" "$(bundler ours "$list")"
both 'unbundle one of two' 64 "$(bundler theirs "$unbundle" "-input=$work/bundle")" "$(bundler ours "$unbundle" "-input=$work/bundle")"
both 'bundle two, compressed' 400 "$(bundler theirs -compress "$bundle")" "$(bundler ours -compress "$bundle")"
printf '    size: %s MiB by us' "$(($(stat -c %s "$work/out") / 1048576))"
mv "$work/out" "$work/ours.bundle"
eval "$(bundler theirs -compress "$bundle")"
printf ', %s MiB by LLVM\n' "$(($(stat -c %s "$work/out") / 1048576))"
mv "$work/out" "$work/bundle"
both 'list compressed' 400 "$(bundler theirs "$list")" "$(bundler ours "$list")"
# LLVM's takes whatever comes out; the MD5 of all of it, which ours verifies, is the difference.
both 'unbundle one of two, compressed' 400 "$(bundler theirs "$unbundle" "-input=$work/bundle")" \
    "$(bundler ours "$unbundle" "-input=$work/bundle")" 1.4
both 'pack two' 64 "$(packager theirs "$pack" "$second")" "$(packager ours "$pack" "$second")"
both 'extract one of two' 64 "$(packager theirs "$work/out" "$extract")" "$(packager ours "$work/out" "$extract")"
both 'wrap for HIP' 64 "$(wrapper theirs "$wrap")" "$(wrapper ours "$wrap")"
finish "$check"
