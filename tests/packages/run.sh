#!/usr/bin/env bash
# Tests the packages of `make packages` in bare roots of Debian 12 and 13. Installs, uses and uninstalls each; the root must then have the
# same files as before. First without a compiler, then with clang, which builds the first example. Needs root (chroot, mount).
# usage: run.sh [RELEASE…]      (default: bookworm trixie). The roots stay in target/roots for the next run: 3 GB.
set -eu
# shellcheck source-path=SCRIPTDIR source=../../packaging/common.sh
. "$(dirname "$0")/../../packaging/common.sh"
HERE=$TOP/tests/packages
# shellcheck source-path=SCRIPTDIR source=roots.sh
. "$HERE/roots.sh"
FILES=$TOP/target/wheels
compilers=(clang-22 lld-22 libomp-22-dev liboffload-22-dev libc6-dev libstdc++-12-dev)

if [ "$(id -u)" != 0 ]; then
    [ "${REQUIRE_TOOLS:-0}" = 1 ] && fail 'testing the packages needs root (chroot, mount)'
    say 'packages were not tested, because that needs root (chroot, mount)'
    exit
fi
[ -e "$OUT/SHA256SUMS" ] || fail "no packages in $OUT: run make packages"

root_with_clang() { # RELEASE
    local root=$ROOTS/$1-clang
    [ -d "$root" ] && return
    say "making a root of $1 with clang"
    rm -rf "$root.new"
    cp -a "$ROOTS/$1" "$root.new"
    reach_debian "$root.new" "$1"
    inside "$root.new" root sh -euc 'apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@" && apt-get clean' sh \
        "${compilers[@]}" > "$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; fail "cannot install clang into a root of $1 (see above)"; }
    mv "$root.new" "$root"
}

# Lists every file of a root with its type, owner, mode, size and target, without the package manager's own records.
listing() { # ROOT
    (cd "$1" && find . \( -path ./proc -o -path ./mnt -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg \) -prune -o \
        -type d -printf '%p %y %u %m\n' -o -printf '%p %y %u %m %s %l\n' | sort)
    (cd "$1" && find ./var/lib/dpkg/info -name 'offld*')
}

use() { # ROOT KIND: tests one package in one root
    local root=$1 kind=$2 user=user started=$SECONDS
    [ "$kind" = deb ] && user=root
    rm -rf "${root:?}/mnt" "$WORK/before" "$WORK/after"
    install -d -m 1777 "$root/mnt"
    cp "$OUT"/*.deb "$OUT"/offld-*-"$TRIPLE".tar.gz "$OUT"/*.whl "$OUT/SHA256SUMS" "$HERE/inside.sh" "$HERE/saxpy.cpp" "$root/mnt/"
    mkdir "$root/mnt/library"
    cp "$FILES"/nvidia_cuda_runtime*.whl "$root/mnt/library/"
    listing "$root" > "$WORK/before"
    inside "$root" "$user" bash -eu /mnt/inside.sh "$kind" "$VERSION" > "$WORK/output" 2>&1 ||
        { cat "$WORK/output" >&2; rm -rf "$root"; fail "$kind in ${root##*/}: failed (the root is removed, because the package may still be installed)"; }
    rm -rf "${root:?}/mnt"
    mkdir "$root/mnt"
    listing "$root" > "$WORK/after"
    diff -u "$WORK/before" "$WORK/after" >&2 || { rm -rf "$root"; fail "$kind in ${root##*/}: files differ after the uninstallation, see above (the root is removed)"; }
    say "$kind in ${root##*/}: $(tail -n 1 "$WORK/output"), uninstalled ($((SECONDS - started)) s)"
}

# Tests the rpm without Fedora: reads it, installs it into an empty directory, runs offld there, and uninstalls it.
use_rpm() {
    local root=$WORK/rpm-root rpm=$OUT/offld-$VERSION-1.x86_64.rpm
    rm -rf "$root"
    mkdir -p "$root"
    local options=(--root "$root" --dbpath /db --nodeps --force-debian)
    [ "$(rpm -qp --nosignature --qf '%{name} %{version} %{arch}' "$rpm")" = "offld $VERSION x86_64" ] || fail "rpm: name, version or architecture of $rpm is wrong"
    rpm -qp --nosignature --requires "$rpm" | grep -q 'libstdc++.so.6' || fail 'rpm: the package does not require libstdc++.so.6'
    rpm "${options[@]}" --nosignature -i "$rpm"
    "$root/usr/bin/offld" --version | grep -qx "offld $VERSION" || fail 'rpm: the installed offld does not start'
    rpm "${options[@]}" -V offld || fail 'rpm: installed files differ from the package (see above)'
    rpm "${options[@]}" -e offld
    # Directories that Fedora's package `filesystem` owns stay.
    if (cd "$root" && find . -path ./db -prune -o ! -type d -print -o -name '*offld*' -print | grep .); then fail 'rpm: these files remain after the uninstallation'; fi
    rm -rf "$root"
    say 'rpm: installed, run, verified, uninstalled'
}

# Packs the same programs again, in another directory: the bytes must be equal.
twice() {
    local other
    other=$(mktemp -d)
    SOURCE_DATE_EPOCH=$(cat "$WORK/packed-when") OFFLD_PACKAGES=$other "$TOP/packaging/make.sh" "$(cat "$WORK/packed-from")" > "$other/log" 2>&1 || { cat "$other/log" >&2; fail 'the second packing failed (see above)'; }
    diff "$OUT/SHA256SUMS" "$other/out/SHA256SUMS" >&2 || fail "the second packing differs, see above and $other/out"
    rm -rf "$other"
    say 'packed twice: identical bytes'
}

(cd "$OUT" && sha256sum --quiet -c SHA256SUMS)
twice
lintian --fail-on error,warning --info "$OUT"/*.deb
say 'lintian: ok, except for the overrides in packaging/debian/lintian-overrides'
use_rpm
if [ $# = 0 ]; then set -- bookworm trixie; fi
for release; do
    bare_root "$release"
    for kind in tarball wheel deb; do use "$ROOTS/$release" "$kind"; done
    root_with_clang "$release"
    for kind in tarball wheel deb; do use "$ROOTS/$release-clang" "$kind"; done
done
