#!/usr/bin/env bash
# Builds offld-VERSION-TRIPLE.tar.gz, which runs where it is unpacked and has install.sh, and the archive of debug symbols.
# gzip, because a bare Debian has no xz. `cargo binstall` finds both programs at the top (Cargo.toml: package.metadata.binstall).
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$WORK"

name=offld-$VERSION-$TRIPLE
rm -rf tarball
mkdir -p "tarball/$name/libexec"
cd "tarball/$name"
cp -p "$PROGRAMS/offld" "$PROGRAMS/offld-llvm" "$TOP/CHANGELOG.md" "$TOP/LICENSE" .
"$TOP/packaging/papers.py" .
if [ -e "$TOP/NOTICE" ]; then cp -p "$TOP/NOTICE" .; fi
if [ -e "$WORK/offld.cdx.json" ]; then cp -p "$WORK/offld.cdx.json" .; fi
sed "s/@VERSION@/$VERSION/; s/@GLIBC@/$GLIBC/" "$TOP/packaging/install.sh" > install.sh
# The tool links, for clang's -B and for install.sh.
mkdir names
for link in "$TREE"/usr/libexec/offld/*; do
    if [ -L "$link" ]; then ln -s ../offld "names/${link##*/}"; fi
done
rmdir libexec
cp -r "$TREE/usr/share" share
rm -rf share/doc
chmod 755 install.sh
cd ..
plain_tar -cf - "$name" | gzip -9n > "$OUT/$name.tar.gz"
cd "$WORK"
# The debug sections are already compressed.
plain_tar -C "$SYMBOLS" --transform "s|^\.build-id|offld-$VERSION-debug/.build-id|" -cf "$OUT/offld-$VERSION-$TRIPLE-debug.tar" .build-id
rm -rf tarball
