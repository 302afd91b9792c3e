#!/bin/sh
# Installs offld @VERSION@ from the directory of this file, or uninstalls it.
# usage: ./install.sh [--prefix DIR]             into DIR (default: ~/.local, or /usr/local for root)
#        ./install.sh --uninstall [--prefix DIR]
# DIR/share/offld/installed lists all created files and directories. To uninstall without this archive: DIR/share/offld/install.sh --uninstall
set -eu
umask 022
LC_ALL=C
export LC_ALL

glibc=@GLIBC@
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
case $here in
    */share/offld) prefix=${here%/share/offld} ;; # the installed copy
    *) if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi ;;
esac
job=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -gt 1 ] || fail '--prefix needs a directory'; prefix=$2; shift ;;
        --prefix=*) prefix=${1#--prefix=} ;;
        --uninstall) job=uninstall ;;
        -h | --help) sed -n '2,5s/^# //p' "$0"; exit ;;
        *) fail "unknown argument '$1': expected --prefix DIR or --uninstall" ;;
    esac
    shift
done
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
list=$prefix/share/offld/installed

uninstall() {
    [ -f "$list" ] || fail "nothing to uninstall: the list $list does not exist; check --prefix"
    # Names are relative to the prefix. Directories end in a slash and precede their contents. The list is removed before its directory.
    names=$(cat "$list")
    rm -f "$list"
    printf '%s\n' "$names" | sed -n '1!G;h;$p' | while IFS= read -r name; do
        case $name in
            '' | /* | .. | ../* | */.. | */../*) fail "$list names a file outside $prefix: $name" ;;
            ./) rmdir "$prefix" 2>/dev/null || true ;;
            */) rmdir "$prefix/$name" 2>/dev/null || true ;; # fails if other files are in it
            *) rm -f "$prefix/$name" ;;
        esac
    done
}

if [ "$job" = uninstall ]; then
    uninstall
    printf 'offld is uninstalled from %s. Its cache stays in ~/.cache/offld.\n' "$prefix"
    exit
fi

[ -x "$here/offld-llvm" ] || fail "offld-llvm not found in $here: run install.sh in the unpacked archive"
for program in offld offld-llvm; do
    # Only offld starts offld-llvm, so it prints its version to stderr and exits with 1.
    case $("$here/$program" --version 2>&1 || true) in
        "$program "*) ;;
        *) fail "cannot start $program. offld needs x86-64 Linux with glibc $glibc (Debian 12) or later, libstdc++ and zlib. To see the error: $here/$program --version" ;;
    esac
done
if [ -f "$list" ]; then uninstall; fi

made= # one name per line
# Creates a directory and its parents, and records the new ones.
directory() {
    [ -d "$prefix/$1" ] && return
    case $1 in */*) directory "${1%/*}" ;; esac
    mkdir "$prefix/$1"
    made="$made$1/
"
}
put() { # MODE FILE NAME
    directory "${3%/*}"
    cp "$2" "$prefix/$3.new.$$"
    chmod "$1" "$prefix/$3.new.$$"
    mv "$prefix/$3.new.$$" "$prefix/$3"
    made="$made$3
"
}
link() { # TARGET NAME
    directory "${2%/*}"
    ln -sf "$1" "$prefix/$2"
    made="$made$2
"
}

if [ ! -d "$prefix" ]; then
    mkdir -p "$prefix"
    made="./
"
fi
directory share/offld
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

printf 'offld @VERSION@ is installed in %s\n' "$prefix"
printf '    clang++ -B%s/libexec/offld -fopenmp --offload-arch=...      in place of LLVM'\''s wrapper\n' "$prefix"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) printf 'Add %s/bin to PATH.\n' "$prefix" ;;
esac
