#!/usr/bin/env bash
# What `make packages` has made, in bare roots of Debian 12 and 13: installed, used and taken away again, after which the root has the files that
# it had before. First without a compiler, then with clang, where README's first example is built and run. Needs root (chroot, mount).
# usage: run.sh [RELEASE…]: bookworm trixie unless told. The roots stay in target/roots for the next run: 3 GB.
set -eu
# shellcheck source-path=SCRIPTDIR source=../../packaging/common.sh
. "$(dirname "$0")/../../packaging/common.sh"
ROOTS=$TOP/target/roots
HERE=$TOP/tests/packages
FILES=$TOP/target/wheels
compilers=(clang-22 lld-22 libomp-22-dev liboffload-22-dev libc6-dev libstdc++-12-dev)

if [ "$(id -u)" != 0 ]; then
    [ "${REQUIRE_TOOLS:-0}" = 1 ] && fail 'the packages are tested in roots of their own, which needs root'
    say 'not tested: the packages are tested in roots of their own, which needs root'
    exit
fi
[ -e "$OUT/SHA256SUMS" ] || fail 'no packages: make packages'

# A command in a root, with nothing of this machine's environment. What is mounted is mounted for it alone and goes with it.
inside() { # ROOT USER COMMAND…
    local root=$1 user=$2 home=/home/user
    shift 2
    [ "$user" = root ] && home=/root
    # shellcheck disable=SC2016  # the inner shell's variables
    unshare --mount --pid --fork --kill-child sh -eu -c '
        root=$1 user=$2 home=$3
        shift 3
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev/shm" # OpenMP: its runtime shares memory there
        exec chroot --userspec="$user" "$root" env -i HOME="$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "$@"' sh "$root" "$user" "$home" "$@"
}

# A folder is renamed into place when all is in it.
bare_root() { # RELEASE
    [ -d "$ROOTS/$1" ] && return
    say "making a bare root of $1"
    rm -rf "$ROOTS/$1.new"
    mkdir -p "$ROOTS"
    debootstrap --variant=minbase --include=python3-venv "$1" "$ROOTS/$1.new" http://deb.debian.org/debian > "$ROOTS/$1.log" 2>&1 ||
        { tail -n 20 "$ROOTS/$1.log" >&2; fail "debootstrap of $1 failed"; }
    inside "$ROOTS/$1.new" root useradd --create-home --uid 1000 user
    inside "$ROOTS/$1.new" root rm -rf /var/cache/apt/archives
    mv "$ROOTS/$1.new" "$ROOTS/$1"
}

root_with_clang() { # RELEASE
    local root=$ROOTS/$1-clang
    [ -d "$root" ] && return
    say "making a root of $1 with clang"
    rm -rf "$root.new"
    cp -a "$ROOTS/$1" "$root.new"
    # Debian 12 has LLVM 22 among its security updates.
    if [ "$1" = bookworm ]; then
        echo 'deb http://deb.debian.org/debian-security bookworm-security main' > "$root.new/etc/apt/sources.list.d/security.list"
    fi
    cp /etc/resolv.conf "$root.new/etc/resolv.conf"
    inside "$root.new" root sh -euc 'apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@" && apt-get clean' sh \
        "${compilers[@]}" > "$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; fail "clang could not be installed into a root of $1"; }
    mv "$root.new" "$root"
}

# Every file of a root with its kind, owner, mode, size and target. What the package manager writes down for itself is left out.
listing() { # ROOT
    (cd "$1" && find . \( -path ./proc -o -path ./mnt -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg \) -prune -o \
        -type d -printf '%p %y %u %m\n' -o -printf '%p %y %u %m %s %l\n' | sort)
    (cd "$1" && find ./var/lib/dpkg/info -name 'offld*')
}

use() { # ROOT KIND, a row of the report
    local root=$1 kind=$2 user=user started=$SECONDS
    [ "$kind" = deb ] && user=root
    rm -rf "${root:?}/mnt" "$WORK/before" "$WORK/after"
    install -d -m 1777 "$root/mnt"
    cp "$OUT"/*.deb "$OUT"/offld-*-"$TRIPLE".tar.gz "$OUT"/*.whl "$OUT/SHA256SUMS" "$HERE/inside.sh" "$HERE/saxpy.cpp" "$root/mnt/"
    mkdir "$root/mnt/library"
    cp "$FILES"/nvidia_cuda_runtime*.whl "$root/mnt/library/"
    listing "$root" > "$WORK/before"
    inside "$root" "$user" bash -eu /mnt/inside.sh "$kind" "$VERSION" > "$WORK/said" 2>&1 ||
        { cat "$WORK/said" >&2; rm -rf "$root"; fail "$kind in ${root##*/}: failed (the root, in which it may still be, is thrown away)"; }
    rm -rf "${root:?}/mnt"
    mkdir "$root/mnt"
    listing "$root" > "$WORK/after"
    diff -u "$WORK/before" "$WORK/after" >&2 || { rm -rf "$root"; fail "$kind in ${root##*/}: these files stayed or went (the root is thrown away)"; }
    say "$kind in ${root##*/}: $(tail -n 1 "$WORK/said"), then gone without a trace ($((SECONDS - started)) s)"
}

# There is no Fedora here: the package is read, installed into an empty folder, called there and taken away.
use_rpm() {
    local root=$WORK/rpm-root rpm=$OUT/offld-$VERSION-1.x86_64.rpm
    rm -rf "$root"
    mkdir -p "$root"
    local options=(--root "$root" --dbpath /db --nodeps --force-debian)
    [ "$(rpm -qp --nosignature --qf '%{name} %{version} %{arch}' "$rpm")" = "offld $VERSION x86_64" ] || fail "rpm: $rpm has another name"
    rpm -qp --nosignature --requires "$rpm" | grep -q 'libstdc++.so.6' || fail 'rpm: the libraries are no requirements'
    rpm "${options[@]}" --nosignature -i "$rpm"
    "$root/usr/bin/offld" --version | grep -qx "offld $VERSION" || fail 'rpm: offld does not start'
    rpm "${options[@]}" -V offld || fail 'rpm: files are not what the package says'
    rpm "${options[@]}" -e offld
    # The folders that Fedora's package `filesystem` owns stay.
    if (cd "$root" && find . -path ./db -prune -o ! -type d -print -o -name '*offld*' -print | grep .); then fail 'rpm: these stayed'; fi
    rm -rf "$root"
    say 'rpm: installed, called, verified, removed'
}

# Packed once more, in another folder: the same bytes.
twice() {
    local other
    other=$(mktemp -d)
    SOURCE_DATE_EPOCH=$(cat "$WORK/packed-when") OFFLD_PACKAGES=$other "$TOP/packaging/make.sh" "$(cat "$WORK/packed-from")" > "$other/log" 2>&1 || { cat "$other/log" >&2; fail 'the second time nothing was made'; }
    diff "$OUT/SHA256SUMS" "$other/out/SHA256SUMS" >&2 || fail "packed twice, these differ: see $other/out"
    rm -rf "$other"
    say 'packed twice: the same bytes'
}

(cd "$OUT" && sha256sum --quiet -c SHA256SUMS)
twice
lintian --fail-on error,warning --info "$OUT"/*.deb
say 'lintian: nothing but the overrides, whose reasons are in packaging/debian/lintian-overrides'
use_rpm
if [ $# = 0 ]; then set -- bookworm trixie; fi
for release; do
    bare_root "$release"
    for kind in tarball wheel deb; do use "$ROOTS/$release" "$kind"; done
    root_with_clang "$release"
    for kind in tarball wheel deb; do use "$ROOTS/$release-clang" "$kind"; done
done
