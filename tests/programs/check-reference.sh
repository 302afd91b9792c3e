#!/bin/bash
# Builds and runs the named programs (default: all) with clang and LLVM's own wrapper. README.md describes the format of their files.
# Prints a line per program and host linker. Exits with 1 if a result differs from that in the file, including `reference: fails`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${CLANG:=clang-22}" "${CLANGXX:=clang++-22}" "${AR:=llvm-ar-22}" "${JOBS:=2}"
export CLANG CLANGXX AR

main_of() { ls "$here/$1".c "$here/$1".cpp "$here/$1"/main.c "$here/$1"/main.cpp 2>/dev/null | head -1; }

# directive KEY: the values of all `//! KEY: value` lines at the start of $main.
directives() { sed '/^\/\/!/!q' "$main" | sed -n 's,^//! \{0\,1\},,p'; }
directive() { directives | sed -n "s|^$1:||p" | sed 's/^ //'; }

offload() { # offload NAME: the offload flags, unless NAME is plain
  [[ " $(directive plain) " == *" $1 "* ]] || echo "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu"
}

compiler() { [[ $1 == *.c ]] && echo "$CLANG" || echo "$CLANGXX"; }

# Compiles the sources among the arguments of a step. Sets `words` to the arguments with objects in their place.
objects() {
  local word pic source
  words=()
  set -f
  for word in $1; do
    if [[ $word != *.c && $word != *.cpp ]]; then words+=("$word"); continue; fi
    local object=${word%.*}.o
    words+=("$object")
    [[ -e $object ]] && continue
    mkdir -p "$(dirname "$object")"
    source=$(dirname "$main")/$word
    [[ -e $source ]] || source=$here/common/$word
    pic=; directives | grep '^shared ' | grep -qwF -- "$word" && pic=-fPIC
    # shellcheck disable=SC2046
    $(compiler "$word") $(offload "$word") $(directive flags) $(directive cflags) $(directive "cflags $word") $pic \
      -c "$source" -o "$object" || return 1
  done
  set +f
}

build() { # in an empty folder; build LINKER
  local ld line key value name
  ld="$(compiler "$main") -fuse-ld=$1"
  while IFS= read -r line; do
    key=${line%%:*} value=${line#*:}
    name=${key#* } key=${key%% *}
    case $key in static | thin | shared | merge | partial | response) objects "$value" || return 1 ;; esac
    # shellcheck disable=SC2046,SC2086
    case $key in
    static) $AR rcs "$name" "${words[@]}" ;;
    thin) $AR rcsT "$name" "${words[@]}" ;;
    shared) set -f; $ld $(offload "$name") $(directive flags) -shared -o "$name" "${words[@]}" ;;
    merge) ld -r -o "$name" "${words[@]}" ;;
    partial) $ld $(offload "$name") $(directive flags) -r -o "$name" "${words[@]}" ;;
    response) printf '%s\n' "${words[@]}" >"$name" ;;
    esac || return 1
    set +f
  done < <(directives)
  value=$(directive link)
  objects "${value:-$(basename "$main")}" || return 1
  # shellcheck disable=SC2046,SC2086
  $ld $(offload program) $(directive flags) -o program "${words[@]}"
}

check() { # check NAME
  local main work linker fails verdict status=0
  main=$(main_of "$1")
  [[ $main ]] || { echo "$1: no such program"; return 1; }
  for linker in $(l=$(directive linkers); echo "${l:-bfd}"); do
    work=$(mktemp -d)
    fails=$(directive reference; directive "reference $linker")
    directive expect >"$work/expected"
    # shellcheck disable=SC2046
    if ! (mkdir "$work/b" && cd "$work/b" && build "$linker") >"$work/log" 2>&1; then verdict="does not build"
    elif ! (cd "$work/b" && env OMP_TARGET_OFFLOAD=mandatory $(directive env) timeout 60 ./program $(directive args); exit $?) \
      >"$work/out" 2>>"$work/log"; then verdict="exits with an error"
    elif ! diff "$work/expected" "$work/out" >>"$work/log"; then verdict="prints something else"
    else verdict=ok; fi
    if [[ $verdict == ok && ! $fails ]]; then echo "ok    $1 ($linker)"
    elif [[ $verdict != ok && $fails ]]; then echo "ok    $1 ($linker): reference $verdict, as its file says"
    else
      status=1
      echo "WRONG $1 ($linker): $verdict${fails:+, but its file says the reference $fails}"
      head -c 3000 "$work/log" | sed 's/^/      /'
      [[ -e $work/out ]] && sed 's/^/      out: /' "$work/out"
    fi
    rm -rf "$work"
  done
  return $status
}

if [[ ${1-} == --one ]]; then check "$2"; exit; fi
if [[ $# == 0 ]]; then
  # shellcheck disable=SC2046
  set -- $(cd "$here" && ls -d ./*.c ./*.cpp ./*/ 2>/dev/null | sed 's,^\./,,; s,/$,,; s,\.[cp]*$,,; /^common$/d' | sort)
fi
printf '%s\n' "$@" | xargs -P "$JOBS" -n 1 "$0" --one || exit 1
