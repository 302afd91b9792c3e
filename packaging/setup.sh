#!/usr/bin/env bash
# Installs the tools for `make packages` and `make test-packages`: Debian packages, two tools from crates.io, and one from PyPI.
# usage: setup.sh [STAMP]
set -eu
# shellcheck source-path=SCRIPTDIR source=../scripts/packages.sh
. "$(dirname "$0")/../scripts/packages.sh"

install_packages dpkg-dev lintian rpm debootstrap python3 python3-venv

# Below target/, so that the user's own tools stay unchanged.
tools=$(cd "$(dirname "$0")/.." && pwd)/target/packages-tools
for tool in cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9; do
    [ -x "$tools/bin/${tool%@*}" ] && continue
    say "installing $tool into target/packages-tools"
    cargo install -q --locked --root "$tools" --target-dir "$tools/build" "$tool" >&2 || shortfall "could not install $tool (cargo install)"
    rm -rf "$tools/build"
done
maturin=1.16.0
if [ "$("$tools/python/bin/maturin" --version 2>/dev/null)" != "maturin $maturin" ]; then
    say "installing maturin $maturin into target/packages-tools/python"
    { python3 -m venv "$tools/python" && "$tools/python/bin/pip" install -q --disable-pip-version-check --only-binary=:all: "maturin==$maturin"; } >&2 ||
        shortfall "could not install maturin $maturin (a virtual environment and pip)"
fi
finish "${1:-}"
