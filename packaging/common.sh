# Sourced by the scripts here: where things are, the version, and the one time that all files in packages have.
# shellcheck shell=bash
# shellcheck disable=SC2034  # those who source this use them

export LC_ALL=C TZ=UTC
umask 022

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK=${OFFLD_PACKAGES:-$TOP/target/packages}
OUT=$WORK/out
# What is installed below /usr, as `make install` does it.
TREE=$WORK/tree
# The two programs, without symbols, and what was taken out of them.
PROGRAMS=$WORK/programs
SYMBOLS=$WORK/symbols
TOOLS=$TOP/target/packages-tools
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)
TRIPLE=x86_64-unknown-linux-gnu
# The glibc that the programs are linked with, which is Debian 12's. programs.sh fails when they need a later one.
GLIBC=2.36
SUMMARY='offload linker: links the device code in host objects and registers it'

# The time of the last commit; of a tree without Git its CHANGELOG.md's.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$TOP" log -1 --format=%ct 2>/dev/null || stat -c %Y "$TOP/CHANGELOG.md")
fi
export SOURCE_DATE_EPOCH

say() { printf 'packages: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# A tar whose bytes depend on nothing but names and contents.
plain_tar() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu "$@"; }
