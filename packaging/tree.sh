#!/usr/bin/env bash
# What is installed below /usr, which all packages are made of: the result of `make install`, manual pages compressed, and the papers.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$TOP"

rm -rf "$TREE"
make --no-print-directory -s install BIN="$PROGRAMS/offld" PREFIX=/usr DESTDIR="$TREE" >/dev/null
gzip -9n "$TREE"/usr/share/man/man1/*.1

papers=$TREE/usr/share/doc/offld
install -d "$papers"
gzip -9nc CHANGELOG.md > "$papers/changelog.gz"
packaging/papers.py "$papers" CHANGELOG.md=changelog.gz
# The licences of what is linked in.
if [ -e NOTICE ]; then gzip -9nc NOTICE > "$papers/NOTICE.gz"; fi
if [ -e "$WORK/offld.cdx.json" ]; then gzip -9nc "$WORK/offld.cdx.json" > "$papers/offld.cdx.json.gz"; fi
