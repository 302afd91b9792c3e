#!/usr/bin/env bash
# The lists of what is in the packages, as CycloneDX in JSON: offld.cdx.json of the programs, offld-python.cdx.json of the Python module.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$TOP"
[ -x "$TOOLS/bin/cargo-cyclonedx" ] || fail "no cargo-cyclonedx: packaging/setup.sh installs it"
rm -f "$WORK/offld.cdx.json" "$WORK/offld-python.cdx.json"
# It writes beside each Cargo.toml of the workspace, whatever it is told.
made=("$TOP/target-offld.json" "$TOP/packaging/python/target-offld.json")
trap 'rm -f "${made[@]}" "$WORK/sbom.new"' EXIT
"$TOOLS/bin/cargo-cyclonedx" cyclonedx -q --format json --spec-version 1.5 --target "$TRIPLE" --override-filename target-offld >&2

list() { # PACKAGE FROM TO LIBRARY=VERSION…: it has features in its list that another member of the workspace asks for, and cargo knows better
    local package=$1 from=$2 to=$3
    shift 3
    cargo tree --locked -p "$package" --edges normal,build --target "$TRIPLE" --prefix none --format '{p}' |
        "$TOP/packaging/sbom.py" "$from" "$TOP" "$@" > "$WORK/sbom.new"
    mv "$WORK/sbom.new" "$to"
}
# LLVM's own zstd is Debian's; the crate zstd-sys brings another one, which is in the list as a crate.
list offld "${made[0]}" "$WORK/offld.cdx.json" "llvm=$(llvm-config-22 --version)" "zstd=$(dpkg-query -W -f='${source:Upstream-Version}' libzstd-dev)"
list offld-python "${made[1]}" "$WORK/offld-python.cdx.json"
