#!/usr/bin/env bash
# Checks that two builds of the same sources, in two directories and with two cargo homes, give byte-identical programs.
# usage: reproducible.sh [--full]      Builds only offld, with little optimization, without LLVM and the remote cache: two minutes on two cores.
#        --full: both programs as `make packages` builds them (without cargo-auditable's list), two times eight minutes.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source-path=SCRIPTDIR source=../packaging/flags.sh
. packaging/flags.sh
say() { printf 'reproducible: %s\n' "$*" >&2; }

programs=(offld)
build=(build --release --locked --quiet)
if [ "${1:-}" = --full ]; then
    programs+=(offld-llvm)
else
    build+=(--no-default-features --bin offld)
    export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
fi
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET_DIR RUSTFLAGS

work=$PWD/target/reproducible
home=${CARGO_HOME:-$HOME/.cargo}
rm -rf "$work"
# Paths of different lengths, neither of which contains the other.
for name in one another/place; do
    folder=$work/$name
    mkdir -p "$folder" "$work/home-of-${name%/*}"
    tar --exclude=./target --exclude=./fuzz/target --exclude=./fuzz/work --exclude=./.git -cf - . | tar -C "$folder" -xf -
    # The same downloads and settings of cargo, under another path.
    for part in registry git config.toml config; do
        if [ -e "$home/$part" ]; then ln -s "$home/$part" "$work/home-of-${name%/*}/$part"; fi
    done
    say "building in $folder"
    (
        export CARGO_HOME=$work/home-of-${name%/*}
        cd "$folder"
        without_folders "$folder"
        "${CARGO:-cargo}" "${build[@]}"
    )
done

for program in "${programs[@]}"; do
    first=$work/one/target/release/$program second=$work/another/place/target/release/$program
    if ! cmp "$first" "$second"; then
        say "$program differs between the two builds. To compare them: diffoscope $first $second"
        exit 1
    fi
    if grep -qaF "$work" "$first"; then
        say "$program contains the path of its build directory: strings -a $first | grep -F $work"
        exit 1
    fi
    say "$program: identical, $(stat -c %s "$first") bytes, $(sha256sum < "$first" | cut -c 1-16)…"
done
rm -rf "$work"
