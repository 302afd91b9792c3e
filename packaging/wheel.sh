#!/usr/bin/env bash
# Builds the wheel for PyPI with maturin. It has the module of packaging/python, `offld` in the scripts directory, `offld-llvm` in
# libexec/offld, manual pages, completions, and the files by which build systems find offld.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source-path=SCRIPTDIR source=flags.sh
. "$(dirname "$0")/flags.sh"
# The size limit in bytes. PyPI allows more, but builds of wheels in containers download this one often.
LARGEST=30000000

maturin=$TOOLS/python/bin/maturin
[ -x "$maturin" ] || fail 'maturin not found: packaging/setup.sh installs it'
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
# offld looks for it in ../libexec/offld; in PATH it would be of no use.
install -m 755 "$PROGRAMS/offld-llvm" "$data/data/libexec/offld/offld-llvm"
# Wheels cannot contain symlinks. `offld links DIR` creates the other tool links; this one is for -fuse-ld=offld.
# shellcheck disable=SC2016  # the script's variables
printf '#!/bin/sh\nexec "$(dirname "$0")/offld" ld.offld "$@"\n' > "$data/scripts/ld.offld"
chmod 755 "$data/scripts/ld.offld"
cp -r "$TREE/usr/share" "$data/data/share"
rm -rf "$data/data/share/doc"
gunzip "$data"/data/share/man/man1/*.gz

# Not in $WORK, so that a second packing of the same programs compiles nothing.
without_folders "$TOP"
(cd "$project" && "$maturin" build --quiet --interpreter "$TOOLS/python/bin/python3" --target-dir "$TOP/target/packages/build" --compression-level 9 --out "$OUT" >&2)

wheel=$OUT/offld-$VERSION-cp39-abi3-manylinux_${GLIBC/./_}_x86_64.whl
[ -e "$wheel" ] || fail "maturin did not write ${wheel##*/}"
size=$(stat -c %s "$wheel")
[ "$size" -le "$LARGEST" ] || fail "${wheel##*/} is too large: $size bytes, limit $LARGEST"
