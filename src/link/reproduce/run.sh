#!/bin/sh
# Repeats the link that this folder was made from. Nothing outside the folder is read but the tools.
#
# usage: ./run.sh OFFLD-OR-WRAPPER [LINKER [ARGUMENT...]]
#
#   OFFLD-OR-WRAPPER  offld, by any of its names, or LLVM's clang-linker-wrapper
#   LINKER            the linker for the host, a path or a name; by default the one of the original link,
#                     @LINKER@
#   ARGUMENT...       more arguments for it: --dry-run, --wrapper-verbose, --save-temps
#
# The tool finds its device compiler as always (offld: OFFLD_CLANG names one). The output is @OUTPUT@.
# A program that needs a library without a soname finds it only when it is started in this folder.
# response.txt is the line; original.txt is how it was given, and versions.txt by which tools it was linked.
set -eu

tool_at() {
  found=$(command -v "$1") || { echo "run.sh: cannot find \`$1'" >&2; exit 1; }
  case $found in
    /*) printf '%s\n' "$found" ;;
    *) printf '%s\n' "$PWD/$found" ;;
  esac
}

if [ $# -eq 0 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
tool=$(tool_at "$1")
shift
linker=@LINKER@
if [ $# -gt 0 ]; then
  linker=$1
  shift
fi
linker=$(tool_at "$linker")

cd "$(dirname "$0")"
mkdir -p @OUT@
set -- @HOST_TRIPLE@ "--linker-path=$linker" "$@" @response.txt
# offld has options that LLVM's wrapper has not.
case $("$tool" --version 2>/dev/null) in
  offld*) set -- @OFFLD_ONLY@ "$@" ;;
esac
# By its own name offld is told what to be.
case ${tool##*/} in
  *clang-linker-wrapper* | ld | *-ld | *ld.offld*) ;;
  *) set -- @PERSONALITY@ "$@" ;;
esac
exec "$tool" "$@"
