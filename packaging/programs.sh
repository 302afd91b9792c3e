#!/usr/bin/env bash
# Builds the two programs for packages, with the list of their crates inside (cargo auditable) and without paths of this machine. Then
# splits each into the stripped program and its debug symbols.
# usage: programs.sh [DIR]      DIR: uses the programs that are already built there
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source-path=SCRIPTDIR source=flags.sh
. "$(dirname "$0")/flags.sh"

from=${1:-}
if [ -z "$from" ]; then
    cd "$TOP"
    [ -x "$TOOLS/bin/cargo-auditable" ] || fail 'cargo-auditable not found: packaging/setup.sh installs it'
    say 'building the programs (cargo auditable build --release)'
    without_folders "$TOP"
    PATH=$TOOLS/bin:$PATH cargo auditable build --release --locked --target-dir "$WORK/build"
    from=$WORK/build/release
fi

rm -rf "$PROGRAMS" "$SYMBOLS"
mkdir -p "$PROGRAMS"
# For the test that packs the same programs a second time.
(cd "$from" && pwd) > "$WORK/packed-from"
echo "$SOURCE_DATE_EPOCH" > "$WORK/packed-when"
for program in offld offld-llvm; do
    [ -x "$from/$program" ] || fail "program not found: $from/$program"
    id=$(readelf -n "$from/$program" | sed -n 's/^ *Build ID: //p')
    [ -n "$id" ] || fail "$from/$program has no build ID, which debuggers need to find its symbols"
    symbols=$SYMBOLS/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "$(dirname "$symbols")"
    objcopy --only-keep-debug --compress-debug-sections "$from/$program" "$symbols"
    chmod 644 "$symbols"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note -o "$PROGRAMS/$program" "$from/$program"
    chmod 755 "$PROGRAMS/$program"

    newest=$(objdump -T "$PROGRAMS/$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
    [ "$(printf '%s\n' "$newest" "$GLIBC" | sort -V | tail -n 1)" = "$GLIBC" ] ||
        fail "$program needs glibc $newest: packages are built on Debian 12, which has $GLIBC"
    if [ -z "${1:-}" ] && grep -qaF -e "$TOP/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$PROGRAMS/$program"; then
        fail "$program contains a path of this machine: strings -a $PROGRAMS/$program | grep -F $HOME"
    fi
done
