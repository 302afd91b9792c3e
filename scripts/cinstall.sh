#!/usr/bin/env bash
# Installs liboffld with cargo-c into target/cinstall/root, and builds examples/c with the flags from pkg-config: `make test-cinstall`.
# cargo-c takes a quarter of an hour to build. CARGO_C: a directory with an installed one.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source-path=SCRIPTDIR source=packages.sh
. scripts/packages.sh

# The last version that Rust 1.95 can build.
version=0.10.24+cargo-0.98.0
tools=${CARGO_C:-$PWD/target/c-tools/bin}
if [ ! -x "$tools/cargo-cinstall" ]; then
    NEEDS_ALL=1
    install_packages libssl-dev pkg-config
    finish ''
    say "installing cargo-c $version into target/c-tools"
    "${CARGO:-cargo}" install -q --locked --root "$PWD/target/c-tools" cargo-c --version "$version" >&2
fi
place=$PWD/target/cinstall
root=$place/root
rm -rf "$root"
PATH=$tools:$PATH cargo-cinstall cinstall --release --locked --no-default-features --prefix=/usr/local --destdir="$root" --target-dir "$place/build"

installed=$(find "$root" ! -type d -printf '%f\n' | sort | tr '\n' ' ')
[ "$installed" = 'liboffld.a liboffld.pc liboffld.so liboffld.so.1 liboffld.so.1.0.0 offld.h ' ] || { say "unexpected list of files in $root: $installed"; exit 1; }
config=$(find "$root" -name liboffld.pc)
export PKG_CONFIG_PATH=${config%/*} PKG_CONFIG_SYSROOT_DIR=$root
libraries=$(find "$root" -name liboffld.so)
libraries=${libraries%/*}
# pkg-config prints several arguments.
# shellcheck disable=SC2046
cc $(pkg-config --cflags liboffld) examples/c/list.c $(pkg-config --libs liboffld) -o "$place/shared"
# shellcheck disable=SC2046
cc $(pkg-config --cflags liboffld) examples/c/list.c "$libraries/liboffld.a" $(pkg-config --libs-only-l --static liboffld | sed 's/-loffld//') -o "$place/static"
# An OffloadBinary with one image, made by LLVM's tool.
printf 'an image' > "$place/image"
/usr/lib/llvm-22/bin/llvm-offload-binary -o "$place/container" "--image=file=$place/image,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=openmp"
for program in shared static; do
    LD_LIBRARY_PATH=$libraries "$place/$program" "$place/container" > "$place/listed" || { say "$place/$program failed on $place/container: $(cat "$place/listed")"; exit 1; }
    grep -q 'openmp amdgcn-amd-amdhsa gfx90a ' "$place/listed" || { say "$place/$program does not list the image of $place/container, but: $(cat "$place/listed")"; exit 1; }
done
[ "$(readelf -d "$place/shared" | grep -c 'NEEDED.*liboffld.so.1')" = 1 ] || { say "$place/shared does not need liboffld.so.1 (readelf -d)"; exit 1; }
say "$root: liboffld, and examples/c built with it in both ways"
