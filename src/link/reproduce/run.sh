#!/bin/sh
# Repeats the link recorded in this directory. Only the tools are read from elsewhere.
#
# usage: ./run.sh OFFLD-OR-WRAPPER [LINKER [ARGUMENT...]]
#
#   OFFLD-OR-WRAPPER  offld, under any of its names, or LLVM's clang-linker-wrapper
#   LINKER            the host linker, a path or a name (default: the one of the original link,
#                     @LINKER@)
#   ARGUMENT...       further arguments: --dry-run, --wrapper-verbose, --save-temps
#
# The tool searches its device compiler as usual (for offld, set OFFLD_CLANG). The output is @OUTPUT@.
# Start the program in this directory if it needs a library without a soname.
# response.txt has the arguments, original.txt the original command line, versions.txt the original tools.
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
# Under its own name, offld needs the tool as the first argument.
case ${tool##*/} in
  *clang-linker-wrapper* | ld | *-ld | *ld.offld*) ;;
  *) set -- @PERSONALITY@ "$@" ;;
esac
exec "$tool" "$@"
