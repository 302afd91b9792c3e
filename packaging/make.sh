#!/usr/bin/env bash
# All packages, into target/packages/out, with SHA256SUMS. The same sources and tools give the same bytes.
# usage: make.sh [FOLDER]: with a folder, of the programs that are built there already.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
here=$TOP/packaging
cd "$TOP"

rm -rf "$OUT"
mkdir -p "$OUT"
"$here/programs.sh" "${1:-}"

say 'listing what the programs are made of'
"$here/sbom.sh"
cp "$WORK/offld.cdx.json" "$OUT/offld-$VERSION.cdx.json"

"$here/tree.sh"
for kind in tarball deb rpm wheel; do
    say "$kind"
    "$here/$kind.sh"
done

cd "$OUT"
sha256sum -- * > ../SHA256SUMS
mv ../SHA256SUMS .
ls -l "$OUT"
