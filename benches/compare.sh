#!/usr/bin/env bash
# offld against the installed LLVM 22 tools and against the host linker alone, on the same command lines.
# usage: compare.sh [--check]     --check: fail when linking zaxpy is slower than with LLVM's wrapper by more than noise,
#                                 or when a link without device code costs more than 5 ms extra
# ROUNDS, RUNS: how often (default 3 rounds of 8 runs); OFFLD: the binary (default target/release/offld)
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=benches/measure.sh
. benches/measure.sh

check=
case "${1:-}" in
    --check) check=1 ;;
    '') ;;
    *) sed -n 's/^# \(usage.*\)/\1/p' "$0" >&2; exit 2 ;;
esac
llvm=/usr/lib/llvm-22
OFFLD=${OFFLD:-${CARGO_TARGET_DIR:-target}/release/offld}
for tool in hyperfine /usr/bin/time "$llvm/bin/clang++" "$llvm/bin/clang-linker-wrapper" "$llvm/bin/ld.lld" "$OFFLD"; do
    command -v "$tool" >/dev/null || { echo "bench: $tool is missing (make setup build)" >&2; exit 1; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/offld-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
links=$work/links
"$OFFLD" links "$links" >/dev/null
theirs=$llvm/bin/clang-linker-wrapper
ours=$links/clang-linker-wrapper
export OFFLD_CLANG=$llvm/bin/clang # the one LLVM's wrapper takes, since it stands beside it

# ---- measuring ------------------------------------------------------------------------------------------------------------

# What clang would run to link, without the program's name: the quoted words of the last line of -###.
argv() { "$llvm/bin/clang++" -### "$@" 2>&1 | tail -n 1 | sed 's/^ *"[^"]*" *//'; }

# ---- what is linked -------------------------------------------------------------------------------------------------------

offload=(-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu)
zaxpy=()
for source in examples/zaxpy/*.cpp; do
    object=$work/$(basename "$source").o
    "$llvm/bin/clang++" -O2 "${offload[@]}" -c "$source" -o "$object"
    zaxpy+=("$object")
done
echo 'int main() { return 0; }' > "$work/plain.cpp"
"$llvm/bin/clang++" -c "$work/plain.cpp" -o "$work/plain.o"

many=()
for i in $(seq 300); do
    printf '.globl datum%d\n.data\ndatum%d: .long 1\n' "$i" "$i" | as -o "$work/many$i.o" -
    many+=("$work/many$i.o")
done
archives=("$llvm"/lib/libLLVM*.a)
megabytes=$(du -cmL "${archives[@]}" | tail -n 1 | cut -f 1)

with_lld=$(argv -fuse-ld=lld "${offload[@]}" "${zaxpy[@]}" -o "$work/zaxpy")
with_bfd=$(argv -fuse-ld=bfd "${offload[@]}" "${zaxpy[@]}" -o "$work/zaxpy")
without_host=${with_lld//--linker-path=*ld.lld\"/--linker-path=/bin/true\"}

# A device compiler that has its image ready, and a copy of LLVM's wrapper that finds this one beside itself.
fake=$work/fake
mkdir "$fake"
cp "$theirs" "$fake/clang-linker-wrapper"
cat > "$fake/clang" <<EOF
#!/bin/sh
while [ "\$1" != -o ]; do shift; done
exec cp "$fake/image" "\$2"
EOF
chmod +x "$fake/clang"
echo 'int image;' | "$llvm/bin/clang" -x c -shared -fPIC - -o "$fake/small"

# ---- the table ------------------------------------------------------------------------------------------------------------

heading 'with device code (zaxpy)' "LLVM's" offld extra ratio
race 'ld.lld as host linker' "$theirs $with_lld" "$ours $with_lld" 'ratio 1.05'
race 'ld.bfd as host linker' "$theirs $with_bfd" "$ours $with_bfd"
cp "$fake/small" "$fake/image"
OFFLD_CLANG=$fake/clang race "the wrapper's own work (both linkers stubbed)" \
    "$fake/clang-linker-wrapper $without_host" "$ours $without_host"
race "ld.lld, and 300 objects without device code" "$theirs $with_lld ${many[*]}" "$ours $with_lld ${many[*]}"
race "ld.lld, and $megabytes MB of archives without it" "$theirs $with_lld ${archives[*]}" "$ours $with_lld ${archives[*]}"

heading 'without device code: ld.offld in front' 'linker alone' 'ld.offld' extra ratio
for linker in "$llvm/bin/ld.lld" "$(command -v ld.bfd)"; do
    name=$(basename "$linker")
    plain=$(argv -fuse-ld="${name#ld.}" "$work/plain.o" -o "$work/plain")
    export OFFLD_LINKER=$linker
    race "$name" "$linker $plain" "$links/ld.offld $plain" 'extra 5'
    race "$name, 300 objects" "$linker $plain ${many[*]}" "$links/ld.offld $plain ${many[*]}"
    race "$name, $megabytes MB of archives" "$linker $plain ${archives[*]}" "$links/ld.offld $plain ${archives[*]}"
done
unset OFFLD_LINKER

heading 'peak memory, one image of 200 MB' "LLVM's" offld extra ratio
{ cat "$fake/small"; head -c 200M /dev/urandom; } > "$fake/image"
export OFFLD_CLANG=$fake/clang
memory 'the wrapper alone (host linker stubbed)' "$fake/clang-linker-wrapper $without_host" "$ours $without_host"
memory 'with ld.lld (the largest process of the link)' "$fake/clang-linker-wrapper $with_lld" "$ours $with_lld"

finish "$check"
