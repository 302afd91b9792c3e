#!/usr/bin/env bash
# Checks that every package in Cargo.lock declares support for the Rust version of Cargo.toml (rust-version).
# Packages without a declaration are only counted: for them, a build with that Rust is the only proof.
set -eu
cd "$(dirname "$0")/.."

if ! command -v jq >/dev/null; then
    echo 'msrv: jq not found: the Rust versions of the dependencies were not checked' >&2
    [ "${REQUIRE_TOOLS:-0}" != 1 ]
    exit
fi
"${CARGO:-cargo}" metadata --format-version 1 --all-features --locked | jq --raw-output '
    def numbers: split(".") | map(tonumber) | (. + [0, 0])[:3];
    .resolve.root as $root
    | (.packages[] | select(.id == $root) | .rust_version) as $promised
    | [.packages[] | select(.rust_version and (.rust_version | numbers) > ($promised | numbers))] as $newer
    | ($newer[] | "msrv: \(.name) \(.version) needs Rust \(.rust_version), but Cargo.toml promises \($promised)"),
      if $newer == [] then
          "msrv: \(.packages | length) packages for Rust \($promised), \([.packages[] | select(.rust_version == null)] | length) of them without a declared version"
      else
          "" | halt_error(1)
      end'
