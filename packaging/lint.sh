#!/usr/bin/env bash
# Runs lintian on .deb packages of existing programs, for CI, where a release build takes too long. debian/lintian-overrides gives the
# reasons for its overrides. `make test-packages` checks the published packages.
# usage: lint.sh DIR
set -eu
OFFLD_PACKAGES=$(cd "$(dirname "$0")/.." && pwd)/target/packages-lint
export OFFLD_PACKAGES DEB_LEVEL=0
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
here=$TOP/packaging

if ! command -v lintian >/dev/null; then
    [ "${REQUIRE_TOOLS:-0}" = 1 ] && fail 'lintian not found: scripts/setup-ci.sh installs it'
    say 'lintian not found: the packages were not checked'
    exit
fi
rm -rf "$WORK"
mkdir -p "$OUT"
"$here/programs.sh" "$1"
"$here/tree.sh"
"$here/deb.sh"
lintian --fail-on error,warning --info "$OUT"/*.deb
say 'lintian: ok, except for the overrides in packaging/debian/lintian-overrides'
rm -rf "$WORK"
