#!/usr/bin/env bash
# Whether every package in Cargo.lock builds with the Rust that Cargo.toml promises (rust-version), by what each package declares.
# Of packages that declare nothing only the number is told: building with that Rust is the only proof for them.
set -eu
cd "$(dirname "$0")/.."

if ! command -v jq >/dev/null; then
    echo 'msrv: no jq, the Rust versions of the dependencies are not looked at' >&2
    [ "${REQUIRE_TOOLS:-0}" != 1 ]
    exit
fi
"${CARGO:-cargo}" metadata --format-version 1 --all-features --locked | jq --raw-output '
    def numbers: split(".") | map(tonumber) | (. + [0, 0])[:3];
    .resolve.root as $root
    | (.packages[] | select(.id == $root) | .rust_version) as $promised
    | [.packages[] | select(.rust_version and (.rust_version | numbers) > ($promised | numbers))] as $newer
    | ($newer[] | "msrv: \(.name) \(.version) needs Rust \(.rust_version), and Cargo.toml promises \($promised)"),
      if $newer == [] then
          "msrv: \(.packages | length) packages for Rust \($promised), \([.packages[] | select(.rust_version == null)] | length) of them do not say what they need"
      else
          "" | halt_error(1)
      end'
