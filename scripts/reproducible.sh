#!/usr/bin/env bash
# Two builds of the same sources, in two folders and with two homes of cargo, give the same programs byte for byte.
# usage: reproducible.sh [--full]      offld alone, hardly optimized, without LLVM and the shared cache: two minutes on two cores.
#        --full: both programs as `make packages` builds them (without cargo-auditable's list), twice eight minutes.
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
# Names of other lengths, and neither is a part of the other.
for name in one another/place; do
    folder=$work/$name
    mkdir -p "$folder" "$work/home-of-${name%/*}"
    tar --exclude=./target --exclude=./fuzz/target --exclude=./fuzz/work --exclude=./.git -cf - . | tar -C "$folder" -xf -
    # What cargo has fetched and how it is set up stays the same, by another name.
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
        say "$program differs. Both are kept; \`diffoscope $first $second\` shows where"
        exit 1
    fi
    if grep -qaF "$work" "$first"; then
        say "$program holds the name of the folder that it was built in: strings -a $first | grep -F $work"
        exit 1
    fi
    say "$program: the same $(stat -c %s "$first") bytes, $(sha256sum < "$first" | cut -c 1-16)…"
done
rm -rf "$work"
