# Sourced by what builds programs for others (programs.sh, scripts/reproducible.sh): no name of a folder of this machine goes into them.
# shellcheck shell=bash

# Both kinds of compilers write the names of sources into what they make. A wrong place for one is no error, so the results are looked at.
without_folders() { # TOP, the folder of offld's sources
    local crates rust
    crates=${CARGO_HOME:-$HOME/.cargo}/registry/src
    rust=$(rustc --print sysroot)/lib/rustlib/src/rust
    export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$crates=crates"$'\x1f'"--remap-path-prefix=$rust=rust"$'\x1f'"--remap-path-prefix=$1=offld"
    export CFLAGS="-ffile-prefix-map=$crates=crates -ffile-prefix-map=$1=offld" CXXFLAGS="-ffile-prefix-map=$crates=crates -ffile-prefix-map=$1=offld"
}
