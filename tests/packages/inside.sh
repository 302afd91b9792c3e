#!/bin/bash
# In a bare root: installs one package, uses offld as users do, and uninstalls it. Files in the user's home directory are removed with
# offld's own commands. run.sh compares the files before and after.
# usage: inside.sh tarball|wheel|deb VERSION
set -eu
kind=$1 version=$2
fail() { echo "$*" >&2; exit 1; }
umask 022
work=$(mktemp -d)
cd "$work"
# Checks that each link of a package's README.md leads to a file.
papers() { # DIR
    local links link
    links=$(grep -oE '\]\([^)#:]+' "$1/README.md" | cut -c 3-)
    [ -n "$links" ] || fail "$1/README.md has no links"
    for link in $links; do [ -e "$1/$link" ] || fail "$1/README.md links to $link, which does not exist"; done
}

case $kind in
    tarball)
        (cd /mnt && grep 'linux-gnu.tar.gz$' SHA256SUMS | sha256sum --quiet -c)
        tar -xzf /mnt/offld-*.tar.gz
        # offld runs where it is unpacked.
        folder=$(echo "$work"/offld-*)
        "$folder/offld" --version | grep -qx "offld $version"
        papers "$folder"
        "$folder/install.sh"
        # A second installation replaces the first.
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
        [ "$(python3 -m offld --version)" = "offld $version" ] || fail "python -m offld does not run offld $version"
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
        # The package must not shadow LLVM's tools.
        [ "$(dpkg -L offld | grep '^/usr/bin/' | sort | tr '\n' ' ')" = '/usr/bin/ld.offld /usr/bin/offld ' ] || fail 'the package has more than two names in /usr/bin'
        ;;
esac
export PATH

[ "$(offld --version)" = "offld $version" ] || fail "offld in PATH is not offld $version"
# dpkg omits manual pages if path-exclude says so, as in containers.
[ -e "$manual" ] || grep -qs 'path-exclude.*/man' /etc/dpkg/dpkg.cfg.d/* || fail "manual page not found: $manual"

# A library from PyPI.
library=$(echo /mnt/library/*.whl)
offld inspect "$library" > inspected
grep -q 'sm_90 ' inspected || fail 'inspect: no image for sm_90 listed'
offld size "$library" | grep -q 'By architecture' || fail 'size: no table by architecture'
offld check --for sm_90 "$library" > checked || fail "check: $(cat checked)"
if offld check --for sm_35 "$library" > checked; then fail 'check: sm_35 has no image, but passed'; fi
offld prune --keep sm_90 -d pruned "$library"
if [ "$kind" = wheel ]; then
    # The module and the program must report the same.
    python3 - "$library" <<'PYTHON'
import json, subprocess, sys
import offld

library = sys.argv[1]
def printed(*args): return json.loads(subprocess.run(["offld", *args, library], stdout=subprocess.PIPE).stdout)
images = offld.images(library)
assert [image.sha256 for image in images] == [image["sha256"] for image in printed("inspect", "--json")["files"][0]["images"]]
assert all(len(image.read()) == image.size for image in images)
assert offld.size(library) == printed("size", "--json")
for device in ("sm_90", "sm_35"):
    assert offld.check(library, device) == printed("check", "--json", "--for", device)
PYTHON
    module=', module'
fi
[ "$(offld inspect --json pruned/*.whl | grep -o '"sm_[0-9]*"' | sort -u)" = '"sm_90"' ] || fail 'prune: images for other architectures remain'

# Registration code: offld must find offld-llvm, and offld-llvm its shared libraries.
printf 'not a real image' > image
"$names/llvm-offload-wrapper" --kind=openmp --triple=x86_64-pc-linux-gnu -o registration.bc image
[ -s registration.bc ] || fail 'llvm-offload-wrapper wrote no registration code'
tested="inspect, size, check, prune, wrapper${module:-}"

# doctor's exit status (docs/guides/doctor.md): 1 without a compiler.
status=0
report=$(offld doctor) || status=$?
if command -v clang++-22 > /dev/null; then expected='0 verdict: can be linked: OpenMP for the CPU'; else expected='1 verdict: nothing can be linked'; fi
case "$status $(echo "$report" | grep '^verdict: ')" in "$expected"*) ;; *) fail "doctor: expected '$expected', but got status $status: $report" ;; esac
tested="$tested, doctor"

# The first program of the tutorial.
if command -v clang++-22 > /dev/null; then
    clang++-22 -B "$names" -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu /mnt/saxpy.cpp -o saxpy
    offld check saxpy > checked || fail "check: $(cat checked)"
    LD_LIBRARY_PATH=/usr/lib/llvm-22/lib OMP_TARGET_OFFLOAD=MANDATORY ./saxpy
    # As the linker (docs/guides/build-systems.md). clang packs images with llvm-offload-binary: Debian's is in the package llvm-22, which is
    # not installed, so -B selects offld's.
    clang++-22 -B "$names" -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -c /mnt/saxpy.cpp
    clang++-22 --ld-path="$names/ld.offld" -fopenmp saxpy.o -o saxpy
    LD_LIBRARY_PATH=/usr/lib/llvm-22/lib OMP_TARGET_OFFLOAD=MANDATORY ./saxpy
    tested="$tested, the first program, and as the linker"
fi

cache=$(offld cache path)
offld cache clear > /dev/null
case $kind in
    tarball) "$HOME/.local/share/offld/install.sh" --uninstall ;;
    wheel) environment/bin/pip uninstall -q -y offld
        left=$(find environment -name '*offld*')
        [ -z "$left" ] || fail "pip uninstall left behind: $left" ;;
    deb) dpkg --purge offld-dbgsym offld ;;
esac
# The cache directory, and its parent in a home directory that had none, belong to the user, not to the package.
rm -rf "$cache"
rmdir "${cache%/*}" 2>/dev/null || true
# The directory that running links share, and images that LLVM 22's OpenMP runtime for the CPU leaves behind with any linker.
rm -rf "/tmp/offld-$(id -u)"
find /tmp -maxdepth 1 -user "$(id -u)" -name 'tmpfile_*' -delete
cd /
rm -rf "$work"
echo "$tested"
