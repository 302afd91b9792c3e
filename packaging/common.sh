# Sourced by the scripts here: paths, the version, and the timestamp of all files in packages.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the scripts that source this file

export LC_ALL=C TZ=UTC
umask 022

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK=${OFFLD_PACKAGES:-$TOP/target/packages}
OUT=$WORK/out
# The files below /usr, as `make install` installs them.
TREE=$WORK/tree
# The two stripped programs, and their debug symbols.
PROGRAMS=$WORK/programs
SYMBOLS=$WORK/symbols
TOOLS=$TOP/target/packages-tools
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)
TRIPLE=x86_64-unknown-linux-gnu
# The glibc of Debian 12, where the programs are built. programs.sh fails if they need a later one.
GLIBC=2.36
SUMMARY='offload linker: links the device code in host objects and registers it'

# The time of the last commit, or of CHANGELOG.md in a tree without Git.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$TOP" log -1 --format=%ct 2>/dev/null || stat -c %Y "$TOP/CHANGELOG.md")
fi
export SOURCE_DATE_EPOCH

say() { printf 'packages: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# A tar whose bytes depend only on names and contents.
plain_tar() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu "$@"; }
