#!/bin/bash
# Builds and runs the named cases (default: all) with clang and LLVM's own wrapper, for each release in the case (see README.md).
# RELEASES="22 19" restricts the releases. SHOW=1 prints the normalized logs instead of comparing them. Exits with 1 on a difference.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$here/../..
: "${OFFLD_RELEASES:=$top/target/releases}" "${OFFLD_CUDA:=$top/target/cuda}" "${RELEASES:=22 19 16 15}" "${SHOW:=}"
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT
for stub in openmp:omptarget cuda:cudart hip:amdhip64 sycl:sycl; do
  cc -std=c11 -Wall -Werror -shared -fPIC "$top/runtime-stubs/${stub%:*}.c" -o "$stubs/lib${stub#*:}.so" || exit 1
done

listed() { sed -n "s/^cuda .*$1=//; s/ [a-z0-9]*=.*//; /^\//p" "$OFFLD_CUDA/cuda.txt" 2>/dev/null; }

# directive KEY: the values of all `KEY: value` lines, and of all `KEY RELEASES: value` lines for this release.
directive() {
  sed '/^#/d' "$case" | awk -v key="$1" -v release="$release" '{
    colon = index($0, ":"); n = split(substr($0, 1, colon - 1), words, " "); value = substr($0, colon + 1); sub(/^ /, "", value)
    if (words[1] != key) next
    wanted = n == 1
    for (i = 2; i <= n; ++i) if (words[i] == release) wanted = 1
    if (wanted) print value }'
}

language() { # language NAME: its flags
  local rdc=-fgpu-rdc archs=sm_80,sm_90 offload=--offload-new-driver
  [[ $(directive rdc) == no ]] && rdc=
  case $1 in
  hip) echo "-x hip $offload $rdc -nogpuinc -nogpulib --offload-arch=gfx90a,gfx908 -isystem $top/tests/device-headers" ;;
  cuda)
    [[ $release == 15 ]] && archs=sm_80,sm_86
    echo "-x cuda $offload $rdc -nocudainc -nocudalib --cuda-path=$cuda --offload-arch=$archs -isystem $top/tests/device-headers"
    # clang 15 does not know a CUDA version as new as the configured one, and then generates calls for the oldest.
    [[ $release == 15 ]] && echo "-Wno-unknown-cuda-version -Xclang -target-sdk-version=11.5" ;;
  sycl) echo "-fsycl -x c++" ;;
  openmp) echo "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -x c" ;;
  c) echo "-x c" ;;
  esac
}

# For CUDA, clang searches PATH for ptxas and nvlink. For SYCL, it searches for clang-sycl-linker, which is next to clang.
build() { # in an empty directory
  local line key value name words
  while IFS= read -r line; do
    [[ $line == \#* ]] && continue
    value=${line#*: } key=${line%%:*}
    name=${key#* } key=${key%% *}
    read -ra words <<<"${value//@cuda@/$cuda}"
    # shellcheck disable=SC2046
    case $key in
    object) "$clang" -O2 -fPIC $(language "${words[0]}") -c "$here/${words[1]}" -o "$name" "${words[@]:2}" ;;
    static) llvm-ar-22 rcs "$name" "${words[@]}" ;;
    shared) "$clang++" -O2 --offload-link -shared -L. -o "$name" "${words[@]}" ;;
    partial) "$clang++" -O2 --offload-link -r -o "$name" "${words[@]}" ;;
    link) "$clang++" -O2 --offload-link -L. -o program "${words[@]}" ;;
    esac || return 1
  done <"$case"
}

# Groups the lines by runtime and sorts the image lines of each table. Everything else keeps its order.
normalize() {
  sed -f "$here/normalize.sed" | sort -s -k1,1 | awk '/^[a-z]* image /{rows[n++] = $0; next} {flush_rows(); print} END {flush_rows()}
    function flush_rows(  i, j, t) { for (i = 1; i < n; ++i) for (j = i; j && rows[j] < rows[j-1]; --j) {t = rows[j]; rows[j] = rows[j-1]; rows[j-1] = t}
      for (i = 0; i < n; ++i) print rows[i]; n = 0 }'
}

check() { # check NAME RELEASE
  local case=$here/$1.case release=$2 work clang cuda fails verdict=ok
  [[ -e $case ]] || { echo "WRONG $1: no such case"; return 1; }
  [[ " $(directive releases) " == *" $release "* ]] || return 0
  clang=/usr/lib/llvm-$release/bin/clang
  if [[ $release == 22 ]]; then cuda=$(listed path); else cuda=$(listed before22); fi
  if grep -q ': cuda ' "$case" && [[ -z $cuda ]]; then echo "skip  $1 ($release): no CUDA tools; scripts/setup-cuda.sh brings them"; return; fi
  [[ -x $clang ]] || { echo "skip  $1 ($release): no $clang"; return; }
  work=$(mktemp -d)
  cp "$stubs"/*.so "$work"
  (cd "$work" && PATH=$cuda/bin:$PATH:${clang%/*} build) >"$work/log" 2>&1 || verdict='does not build'
  if [[ $verdict == ok ]]; then
    (cd "$work" && env OFFLD_LEDGER=ledger LD_LIBRARY_PATH=. timeout 60 ./program >out) 2>>"$work/log" || verdict='exits with an error'
    normalize <"$work/ledger" >"$work/got"
  fi
  if [[ $SHOW ]]; then echo "== $1 ($release): $verdict"; head -20 "$work/log"; sed 's/^/expect: /' "$work/out" 2>/dev/null; sed 's/^/ledger: /' "$work/got" 2>/dev/null; rm -rf "$work"; return; fi
  directive expect >"$work/expected"
  directive ledger >"$work/wanted"
  if [[ $verdict == ok ]] && ! diff "$work/expected" "$work/out" >>"$work/log"; then verdict='prints something else'; fi
  if [[ $verdict == ok ]] && ! diff "$work/wanted" "$work/got" >>"$work/log"; then verdict='has another ledger'; fi
  fails=$(directive reference)
  if [[ $verdict == ok && ! $fails ]]; then echo "ok    $1 ($release)"
  elif [[ $verdict != ok && $fails ]]; then echo "ok    $1 ($release): reference $verdict, as its file says"
  else
    echo "WRONG $1 ($release): $verdict${fails:+, but its file says the reference $fails}"
    head -c 3000 "$work/log" | sed 's/^/      /'
    rm -rf "$work"
    return 1
  fi
  rm -rf "$work"
}

if [[ $# == 0 ]]; then
  set -- "$here"/*.case
  set -- "${@##*/}"
  set -- "${@%.case}"
fi
status=0
for name; do for release in $RELEASES; do check "$name" "$release" || status=1; done; done
exit $status
