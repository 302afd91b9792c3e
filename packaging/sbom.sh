#!/usr/bin/env bash
# The list of what the programs are made of, on stdout: CycloneDX, as JSON.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
cd "$TOP"
[ -x "$TOOLS/bin/cargo-cyclonedx" ] || fail "no cargo-cyclonedx: packaging/setup.sh installs it"
# It writes beside Cargo.toml, whatever it is told.
trap 'rm -f "$TOP/target-offld.json"' EXIT
"$TOOLS/bin/cargo-cyclonedx" cyclonedx -q --format json --spec-version 1.5 --target "$TRIPLE" --override-filename target-offld >&2
libraries=(
    "llvm=$(llvm-config-22 --version)"
    # LLVM's own, which is Debian's; the crate zstd-sys brings another one, which is in the list as a crate.
    "zstd=$(dpkg-query -W -f='${source:Upstream-Version}' libzstd-dev)"
)
"$TOP/packaging/sbom.py" "$TOP/target-offld.json" "$TOP" "${libraries[@]}"
