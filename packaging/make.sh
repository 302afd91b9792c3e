#!/usr/bin/env bash
# Builds all packages into target/packages/out, with SHA256SUMS. The same sources and tools give the same bytes.
# usage: make.sh [DIR]      DIR: packs the programs that are already built there
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
here=$TOP/packaging
cd "$TOP"

rm -rf "$OUT"
mkdir -p "$OUT"
"$here/programs.sh" "${1:-}"

say 'writing the SBOMs'
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
