#!/bin/sh
# Installs offld @VERSION@ out of the folder that this file is in, and takes it away again.
# usage: ./install.sh [--prefix DIR]             into DIR: ~/.local, or /usr/local for root
#        ./install.sh --uninstall [--prefix DIR]
# Every file and every folder that was made is in DIR/share/offld/installed. Without this archive: DIR/share/offld/install.sh --uninstall
set -eu
umask 022
LC_ALL=C
export LC_ALL

glibc=@GLIBC@
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
case $here in
    */share/offld) prefix=${here%/share/offld} ;; # the copy that was installed
    *) if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi ;;
esac
job=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -gt 1 ] || fail '--prefix needs a folder'; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) job=uninstall ;;
        -h | --help) sed -n '2,5s/^# //p' "$0"; exit ;;
        *) fail "$1 is none of --prefix DIR and --uninstall" ;;
    esac
    shift
done
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
list=$prefix/share/offld/installed

uninstall() {
    [ -f "$list" ] || fail "nothing to take away: $list, which install.sh writes, is not there"
    # Names are relative to the prefix, folders end in a slash and come before what is in them. The list goes before its folder.
    names=$(cat "$list")
    rm -f "$list"
    printf '%s\n' "$names" | sed -n '1!G;h;$p' | while IFS= read -r name; do
        case $name in
            '' | /* | .. | ../* | */.. | */../*) fail "$list names a file outside of $prefix: $name" ;;
            ./) rmdir "$prefix" 2>/dev/null || true ;;
            */) rmdir "$prefix/$name" 2>/dev/null || true ;; # fails where something of others is in it
            *) rm -f "$prefix/$name" ;;
        esac
    done
}

if [ "$job" = uninstall ]; then
    uninstall
    printf 'offld is taken away from %s. What it keeps of device links stays in ~/.cache/offld.\n' "$prefix"
    exit
fi

[ -x "$here/offld-llvm" ] || fail "$here has no programs: this is run in the unpacked archive"
for program in offld offld-llvm; do
    # offld-llvm, which only offld starts, prints its version to stderr and exits with 1.
    case $("$here/$program" --version 2>&1 || true) in
        "$program "*) ;;
        *) fail "$program does not start here. It needs an x86-64 Linux with glibc $glibc (Debian 12) or later, libstdc++ and zlib: $here/$program --version" ;;
    esac
done
if [ -f "$list" ]; then uninstall; fi

made= # one name in each line
# The folder of a name, with those above it; what is made is written down.
folder() {
    [ -d "$prefix/$1" ] && return
    case $1 in */*) folder "${1%/*}" ;; esac
    mkdir "$prefix/$1"
    made="$made$1/
"
}
put() { # MODE FILE NAME
    folder "${3%/*}"
    cp "$2" "$prefix/$3.new.$$"
    chmod "$1" "$prefix/$3.new.$$"
    mv "$prefix/$3.new.$$" "$prefix/$3"
    made="$made$3
"
}
link() { # TARGET NAME
    folder "${2%/*}"
    ln -sf "$1" "$prefix/$2"
    made="$made$2
"
}

if [ ! -d "$prefix" ]; then
    mkdir -p "$prefix"
    made="./
"
fi
folder share/offld
put 755 "$here/offld" bin/offld
put 755 "$here/offld-llvm" libexec/offld/offld-llvm
link offld bin/ld.offld
for name in "$here"/names/*; do link ../../bin/offld "libexec/offld/${name##*/}"; done
cd "$here"
find share -type f | sort > "$prefix/share/offld/installed.new"
while IFS= read -r name; do put 644 "$name" "$name"; done < "$prefix/share/offld/installed.new"
rm "$prefix/share/offld/installed.new"
put 755 "$here/install.sh" share/offld/install.sh
printf '%s' "$made" > "$list"

printf 'offld @VERSION@ is in %s\n' "$prefix"
printf '    clang++ -B%s/libexec/offld -fopenmp --offload-arch=...      in place of LLVM'\''s wrapper\n' "$prefix"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) printf '%s/bin is not in PATH yet\n' "$prefix" ;;
esac
