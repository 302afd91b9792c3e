#!/bin/bash
# In a bare root: installs one package, uses offld as its users do, and takes it away. What the user's home gets from it is removed by the commands
# that offld has for that; run.sh compares the files before and after.
# usage: inside.sh tarball|wheel|deb VERSION
set -eu
kind=$1 version=$2
fail() { echo "$*" >&2; exit 1; }
umask 022
work=$(mktemp -d)
cd "$work"
# Each link of a package's README.md leads somewhere.
papers() { # FOLDER
    local links link
    links=$(grep -oE '\]\([^)#:]+' "$1/README.md" | cut -c 3-)
    [ -n "$links" ] || fail "$1/README.md has no links"
    for link in $links; do [ -e "$1/$link" ] || fail "$1/README.md: no $link"; done
}

case $kind in
    tarball)
        (cd /mnt && grep 'linux-gnu.tar.gz$' SHA256SUMS | sha256sum --quiet -c)
        tar -xzf /mnt/offld-*.tar.gz
        # It runs where it is unpacked.
        folder=$(echo "$work"/offld-*)
        "$folder/offld" --version | grep -qx "offld $version"
        papers "$folder"
        "$folder/install.sh"
        # A second time puts the same in the place of the first.
        "$folder/install.sh" > /dev/null
        rm -rf "$folder"
        PATH=$HOME/.local/bin:$PATH
        names=$HOME/.local/libexec/offld
        manual=$HOME/.local/share/man/man1/offld.1.gz
        ;;
    wheel)
        python3 -m venv environment
        environment/bin/pip install -q --no-index --disable-pip-version-check /mnt/offld-*.whl
        PATH=$work/environment/bin:$PATH
        [ "$(python3 -m offld --version)" = "offld $version" ] || fail 'python -m offld is another one'
        python3 -c "import offld, sys; sys.exit(offld.__version__ != '$version')"
        [ "$(ld.offld --version | wc -l)" -gt 0 ]
        offld links names > /dev/null
        names=$work/names
        manual=$work/environment/share/man/man1/offld.1
        ;;
    deb)
        dpkg -i /mnt/offld_*.deb /mnt/offld-dbgsym_*.deb
        names=/usr/libexec/offld
        manual=/usr/share/man/man1/offld.1.gz
        papers /usr/share/doc/offld
        # None of LLVM's names gets in the way of LLVM's own.
        [ "$(dpkg -L offld | grep '^/usr/bin/' | sort | tr '\n' ' ')" = '/usr/bin/ld.offld /usr/bin/offld ' ] || fail 'more than two names in /usr/bin'
        ;;
esac
export PATH

[ "$(offld --version)" = "offld $version" ] || fail 'offld is another one'
# Debian's dpkg leaves manual pages out where it is told to, as in containers.
[ -e "$manual" ] || grep -qs 'path-exclude.*/man' /etc/dpkg/dpkg.cfg.d/* || fail "no $manual"

# A library of PyPI.
library=$(echo /mnt/library/*.whl)
offld inspect "$library" > inspected
grep -q 'sm_90 ' inspected || fail 'inspect: no sm_90'
offld size "$library" | grep -q 'By architecture' || fail 'size: no table'
offld check --for sm_90 "$library" > checked || fail "check: $(cat checked)"
if offld check --for sm_35 "$library" > checked; then fail 'check: a device that has no image'; fi
offld prune --keep sm_90 -d pruned "$library"
if [ "$kind" = wheel ]; then
    # The module says what the program says.
    python3 - "$library" <<'PYTHON'
import json, subprocess, sys
import offld

library = sys.argv[1]
def told(*words): return json.loads(subprocess.run(["offld", *words, library], stdout=subprocess.PIPE).stdout)
images = offld.images(library)
assert [image.sha256 for image in images] == [image["sha256"] for image in told("inspect", "--json")["files"][0]["images"]]
assert all(len(image.read()) == image.size for image in images)
assert offld.size(library) == told("size", "--json")
for device in ("sm_90", "sm_35"):
    assert offld.check(library, device) == told("check", "--json", "--for", device)
PYTHON
    module=', module'
fi
[ "$(offld inspect --json pruned/*.whl | grep -o '"sm_[0-9]*"' | sort -u)" = '"sm_90"' ] || fail 'prune: others are left'

# Registration code: offld finds offld-llvm, and that finds its libraries.
printf 'not a real image' > image
"$names/llvm-offload-wrapper" --kind=openmp --triple=x86_64-pc-linux-gnu -o registration.bc image
[ -s registration.bc ] || fail 'no registration code'
said="inspect, size, check, prune, wrapper${module:-}"

# What is missing, by its exit status (docs/doctor.md): without a compiler 1, and what to install is said.
status=0
told=$(offld doctor) || status=$?
if command -v clang++-22 > /dev/null; then expected='0 verdict: can be linked: OpenMP, the processor as device'; else expected='1 verdict: nothing can be linked'; fi
case "$status $(echo "$told" | grep '^verdict: ')" in "$expected"*) ;; *) fail "doctor: not $expected, but status $status: $told" ;; esac
said="$said, doctor"

# README's first example.
if command -v clang++-22 > /dev/null; then
    clang++-22 -B "$names" -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu /mnt/saxpy.cpp -o saxpy
    offld check saxpy > checked || fail "check: $(cat checked)"
    LD_LIBRARY_PATH=/usr/lib/llvm-22/lib OMP_TARGET_OFFLOAD=MANDATORY ./saxpy
    # docs/use.md's second one: as the linker. What compiles packs images with llvm-offload-binary, which Debian has in llvm-22, and offld here.
    clang++-22 -B "$names" -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -c /mnt/saxpy.cpp
    clang++-22 --ld-path="$names/ld.offld" -fopenmp saxpy.o -o saxpy
    LD_LIBRARY_PATH=/usr/lib/llvm-22/lib OMP_TARGET_OFFLOAD=MANDATORY ./saxpy
    said="$said, README's first example, and as the linker"
fi

cache=$(offld cache path)
offld cache clear > /dev/null
case $kind in
    tarball) "$HOME/.local/share/offld/install.sh" --uninstall ;;
    wheel) environment/bin/pip uninstall -q -y offld
        left=$(find environment -name '*offld*')
        [ -z "$left" ] || fail "pip uninstall leaves $left" ;;
    deb) dpkg --purge offld-dbgsym offld ;;
esac
# The folder of the cache, and the one of caches in a home that had none: the user's, not the package's.
rm -rf "$cache"
rmdir "${cache%/*}" 2>/dev/null || true
# What links of this user share while they run; and images that LLVM 22's OpenMP runtime for the host leaves, whoever linked the program.
rm -rf "/tmp/offld-$(id -u)"
find /tmp -maxdepth 1 -user "$(id -u)" -name 'tmpfile_*' -delete
cd /
rm -rf "$work"
echo "$said"
