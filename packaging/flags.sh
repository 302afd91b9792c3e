# Sourced by scripts that build programs for others (programs.sh, scripts/reproducible.sh): keeps paths of this machine out of the programs.
# shellcheck shell=bash

# rustc and the C compilers write source paths into their output. A wrong prefix here is not an error, so the callers check the programs.
without_folders() { # TOP, the source directory of offld
    local crates rust
    crates=${CARGO_HOME:-$HOME/.cargo}/registry/src
    rust=$(rustc --print sysroot)/lib/rustlib/src/rust
    export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$crates=crates"$'\x1f'"--remap-path-prefix=$rust=rust"$'\x1f'"--remap-path-prefix=$1=offld"
    export CFLAGS="-ffile-prefix-map=$crates=crates -ffile-prefix-map=$1=offld" CXXFLAGS="-ffile-prefix-map=$crates=crates -ffile-prefix-map=$1=offld"
}
