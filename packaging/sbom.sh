#!/usr/bin/env bash
# Writes the SBOMs of the packages, as CycloneDX JSON: offld.cdx.json for the programs, offld-python.cdx.json for the Python module.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$TOP"
[ -x "$TOOLS/bin/cargo-cyclonedx" ] || fail 'cargo-cyclonedx not found: packaging/setup.sh installs it'
rm -f "$WORK/offld.cdx.json" "$WORK/offld-python.cdx.json"
# cargo-cyclonedx always writes next to each Cargo.toml of the workspace.
made=("$TOP/target-offld.json" "$TOP/packaging/python/target-offld.json")
trap 'rm -f "${made[@]}" "$TOP"/crates/*/target-offld.json "$WORK/sbom.new"' EXIT
"$TOOLS/bin/cargo-cyclonedx" cyclonedx -q --format json --spec-version 1.5 --target "$TRIPLE" --override-filename target-offld >&2

# cargo-cyclonedx also lists crates of features that only another workspace member enables; cargo tree does not.
list() { # PACKAGE FROM TO LIBRARY=VERSION…
    local package=$1 from=$2 to=$3
    shift 3
    cargo tree --locked -p "$package" --edges normal,build --target "$TRIPLE" --prefix none --format '{p}' |
        "$TOP/packaging/sbom.py" "$from" "$TOP" "$@" > "$WORK/sbom.new"
    mv "$WORK/sbom.new" "$to"
}
# LLVM uses Debian's zstd. The crate zstd-sys contains another one, which the list has as a crate.
list offld "${made[0]}" "$WORK/offld.cdx.json" "llvm=$(llvm-config-22 --version)" "zstd=$(dpkg-query -W -f='${source:Upstream-Version}' libzstd-dev)"
list offld-python "${made[1]}" "$WORK/offld-python.cdx.json"
