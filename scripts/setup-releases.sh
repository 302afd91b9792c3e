#!/usr/bin/env bash
# Installs LLVM 14, 15, 16 and 19 next to 22: installs the compilers, unpacks the OpenMP runtimes, and writes a list of all paths.
# usage: setup-releases.sh [STAMP]      OFFLD_RELEASES: the target directory (default: target/releases), without spaces
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=packages.sh
. "$here/packages.sh"

releases=(14 15 16 19)
root=${OFFLD_RELEASES:-$here/../target/releases}
mkdir -p "$root"
root=$(cd "$root" && pwd)

packages=(libelf1 libffi8) # dependencies of the host plugins
for n in "${releases[@]}"; do packages+=("clang-$n" "clang-tools-$n" "lld-$n" "llvm-$n"); done
# For device code: AMD's bitcode libraries, and the SPIR-V linker.
packages+=(rocm-device-libs spirv-tools)
# LLVM 19 as a library, for `make test-llvm19`.
packages+=(llvm-19-dev libpolly-19-dev)
install_packages "${packages[@]}"

# The runtimes of two releases cannot be installed together (libomp-14-dev conflicts with libomp-15-dev, and so on), but they work
# from any directory.
unpack() { # RELEASE
    local into=$root/llvm-$1 debs
    [ -e "$into/.unpacked" ] && return
    command -v apt-get >/dev/null || return 0
    debs=$(mktemp -d "$root/debs.XXXXXX")
    # apt downloads as the unprivileged user _apt, which cannot write here; the sandbox option prevents its long warning.
    if (cd "$debs" && apt-get -o APT::Sandbox::User=root download -qq "libomp-$1-dev" "libomp5-$1") >&2; then
        rm -rf "$into"
        mkdir "$into"
        for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$into"; done
        touch "$into/.unpacked"
    else
        shortfall "could not download the OpenMP runtime of LLVM $1"
    fi
    rm -rf "$debs"
}
for n in "${releases[@]}"; do unpack "$n"; done

# The rest only reads: the list and the table name the files that really exist.
list=$root/releases.txt
: > "$list.new"
row='%-8s %-9s %-8s %-8s %-6s %-11s %s\n'
# shellcheck disable=SC2059 # a constant format
printf "$row" release compiler wrapper ld.lld omp.h libomptarget 'host plugin'

check() { # FILE: "yes" or "NO"
    if [ -e "$1" ]; then echo yes; else echo NO; fi
}

first() { # prints the first existing FILE, or the first argument if none exists
    local file
    for file; do [ -e "$file" ] && break; file=$1; done
    echo "$file"
}

record() { # RELEASE PREFIX-OF-RUNTIME
    local n=$1 bin=/usr/lib/llvm-$1/bin lib=$2/lib flags='' include plugin builtin=''
    include=$(dirname "$(first "$lib"/clang/*/include/omp.h)")
    # Up to 16, each device plugin is a separate library; later ones are inside libomptarget.
    plugin=$(first "$lib/libomptarget.rtl.$(uname -m).so" "$lib/libomptarget.so")
    [ "$n" -gt 16 ] && builtin=' (built in)'
    # In 14, the new driver, which makes fat objects, is not the default.
    [ "$n" = 14 ] && flags=' flags=-fopenmp-new-driver'
    local cells=("$(check "$bin/clang++")" "$(check "$bin/clang-linker-wrapper")" "$(check "$bin/ld.lld")"
        "$(check "$include/omp.h")" "$(check "$lib/libomptarget.so")" "$(check "$plugin")")
    # shellcheck disable=SC2059
    printf "$row" "$n" "${cells[@]:0:5}" "${cells[5]}$builtin"
    case " ${cells[*]} " in
        *' NO '*) shortfall "LLVM $n is incomplete (NO in the table): its tests cannot run" ;;
        *)
            echo "$n clang=$bin/clang clangxx=$bin/clang++ wrapper=$bin/clang-linker-wrapper bin=$bin include=$include lib=$lib plugin=$plugin$flags" >> "$list.new"
            ;;
    esac
}
for n in "${releases[@]}"; do record "$n" "$root/llvm-$n/usr/lib/llvm-$n"; done
record 22 /usr/lib/llvm-22

bitcode=$(dpkg -L rocm-device-libs 2>/dev/null | sed -n 's,/ockl.bc$,,p')
spirv=$(command -v spirv-link || true)
for extra in "rocm bitcode=$bitcode" "spirv link=$spirv"; do
    case $extra in
        *=) shortfall "not found: ${extra%=}" ;;
        *) echo "$extra" | tee -a "$list.new" ;;
    esac
done
mv "$list.new" "$list"
echo "written: $list"
finish "${1:-}"
