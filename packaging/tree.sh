#!/usr/bin/env bash
# Creates the file tree below /usr for all packages: the result of `make install`, with compressed manual pages, and the documents.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$TOP"

rm -rf "$TREE"
make --no-print-directory -s install BIN="$PROGRAMS/offld" PREFIX=/usr DESTDIR="$TREE" >/dev/null
gzip -9n "$TREE"/usr/share/man/man1/*.1

papers=$TREE/usr/share/doc/offld
# Each package format has its own form and location for licences.
rm -f "$papers/LICENSE" "$papers/NOTICE"
gzip -9nc CHANGELOG.md > "$papers/changelog.gz"
packaging/papers.py "$papers" CHANGELOG.md=changelog.gz
# The licences of linked libraries and crates.
if [ -e NOTICE ]; then gzip -9nc NOTICE > "$papers/NOTICE.gz"; fi
if [ -e "$WORK/offld.cdx.json" ]; then gzip -9nc "$WORK/offld.cdx.json" > "$papers/offld.cdx.json.gz"; fi
