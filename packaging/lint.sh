#!/usr/bin/env bash
# lintian's look at the .deb packages, made of programs that are built already: what CI does where a release build takes too long. What lintian may say has its
# reason in debian/lintian-overrides. `make test-packages` looks at the packages that are given away.
# usage: lint.sh FOLDER
set -eu
OFFLD_PACKAGES=$(cd "$(dirname "$0")/.." && pwd)/target/packages-lint
export OFFLD_PACKAGES DEB_LEVEL=0
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
here=$TOP/packaging

if ! command -v lintian >/dev/null; then
    [ "${REQUIRE_TOOLS:-0}" = 1 ] && fail 'no lintian (scripts/setup-ci.sh)'
    say 'no lintian, the packages are not looked at'
    exit
fi
rm -rf "$WORK"
mkdir -p "$OUT"
"$here/programs.sh" "$1"
"$here/tree.sh"
"$here/deb.sh"
lintian --fail-on error,warning --info "$OUT"/*.deb
say 'lintian: nothing but what has its reason in packaging/debian/lintian-overrides'
rm -rf "$WORK"
