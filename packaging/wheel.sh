#!/usr/bin/env bash
# The wheel for PyPI, built by maturin: the module of packaging/python, `offld` where pip puts programs, `offld-llvm` in libexec/offld beside it,
# manual pages, completions and what build systems find offld by.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source-path=SCRIPTDIR source=flags.sh
. "$(dirname "$0")/flags.sh"
# PyPI takes more; people who build wheels in containers fetch this one often.
LARGEST=30000000

maturin=$TOOLS/python/bin/maturin
[ -x "$maturin" ] || fail 'no maturin: packaging/setup.sh installs it'
project=$WORK/wheel
data=$project/offld.data
rm -rf "$project"
mkdir -p "$data/scripts" "$data/data/libexec/offld"
cp -r "$TOP/packaging/python/offld" "$TOP/packaging/python/README.md" "$TOP/LICENSE" "$TOP/NOTICE" "$project"
rm -rf "$project/offld/__pycache__"
cp "$WORK/offld.cdx.json" "$WORK/offld-python.cdx.json" "$project"
sed "s|^version = .*|version = \"$VERSION\"|; s|^manifest-path = .*|manifest-path = \"$TOP/packaging/python/Cargo.toml\"|" \
    "$TOP/packaging/python/pyproject.toml" > "$project/pyproject.toml"

install -m 755 "$PROGRAMS/offld" "$data/scripts/offld"
# Beside offld's folder, where it looks; in PATH it would be of no use.
install -m 755 "$PROGRAMS/offld-llvm" "$data/data/libexec/offld/offld-llvm"
# A wheel has no symbolic links. `offld links DIR` makes the other names; this one is for -fuse-ld=offld.
# shellcheck disable=SC2016  # the script's variables
printf '#!/bin/sh\nexec "$(dirname "$0")/offld" ld.offld "$@"\n' > "$data/scripts/ld.offld"
chmod 755 "$data/scripts/ld.offld"
cp -r "$TREE/usr/share" "$data/data/share"
rm -rf "$data/data/share/doc"
gunzip "$data"/data/share/man/man1/*.gz

# Not in $WORK, so that packing the same programs once more compiles nothing.
without_folders "$TOP"
(cd "$project" && "$maturin" build --quiet --interpreter "$TOOLS/python/bin/python3" --target-dir "$TOP/target/packages/build" --compression-level 9 --out "$OUT" >&2)

wheel=$OUT/offld-$VERSION-cp39-abi3-manylinux_${GLIBC/./_}_x86_64.whl
[ -e "$wheel" ] || fail "maturin has made another wheel than ${wheel##*/}"
size=$(stat -c %s "$wheel")
[ "$size" -le "$LARGEST" ] || fail "${wheel##*/} has $size bytes, and $LARGEST are the most it may have"
