# shellcheck shell=bash
# What the groups of rows share: the tools, command lines as clang would give them, the device link cache, stand-ins for a device
# compiler. Sourced, in the folder that everything is made in.

llvm=${LLVM:-/usr/lib/llvm-22}
links=$work/links
lld=$llvm/bin/ld.lld
theirs=$llvm/bin/clang-linker-wrapper
ours=$links/clang-linker-wrapper
offload=(-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu)

need_tools() {
    local tool
    for tool in hyperfine /usr/bin/time "$llvm"/bin/{clang++,clang-linker-wrapper,ld.lld,clang-offload-bundler,llvm-offload-binary,llvm-offload-wrapper,llvm-objcopy} "$offld"; do
        command -v "$tool" >/dev/null || fail "$tool is missing (make setup build)"
    done
}

# Reads what is measured into memory anew, where that is allowed: what others did on the machine before leaves the pages of libraries
# scattered, and a linker that maps 150 MB of them then starts a third slower. Both sides and the floor gain by it.
settle_caches() {
    sync
    if [ -w /proc/sys/vm/drop_caches ]; then
        echo 3 > /proc/sys/vm/drop_caches
        [ ! -w /proc/sys/vm/compact_memory ] || echo 1 > /proc/sys/vm/compact_memory
    fi
    cat "$llvm"/lib/libLLVM*.so* "$llvm"/bin/lld "$offld" >/dev/null 2>&1 || :
}

clean_environment() {
    unset MAKEFLAGS MAKELEVEL OFFLD_LLVM OFFLD_LLVM_TIMEOUT OFFLD_REPRODUCE OFFLD_LINKER OFFLD_CACHE_REMOTE
    export LC_ALL=C TMPDIR=$work/tmp OFFLD_CACHE=$work/cache
    export OFFLD_CLANG=$llvm/bin/clang # the one LLVM's wrapper takes, since it stands beside it
    mkdir -p "$TMPDIR" "$work/bin"
    # clang's -fuse-ld=lld and a linker by its name are LLVM 22's.
    export PATH=$llvm/bin:$PATH
}

# ---- caches: what `before` of a row does ------------------------------------------------------------------------------------

# An empty cache: the first link ever. The other side has none.
first() {
    [ "$1" != ours ] || rm -rf "$OFFLD_CACHE"
}

# A cache that has seen another program: of this one's device links none is there, but clang has been asked what it runs.
cold() {
    [ "$1" = ours ] || return 0
    rm -rf "$OFFLD_CACHE"
    cp -a "$work/cache.other" "$OFFLD_CACHE"
}

# What the cache has seen then: a link for the same kind of device. OPTIONS are clang's.
other_program() { # OPTIONS...
    local line
    rm -rf "$work/cache.other"
    echo 'int main() { int x = 0; _Pragma("omp target map(tofrom: x)") x = 1; return x - 1; }' > other.cpp
    "$llvm/bin/clang++" -O2 "$@" -c other.cpp -o other.o
    line=$(argv -fuse-ld=lld "$@" other.o -o other)
    # Twice: files that were written a moment ago are not taken for known.
    for _ in 1 2; do
        sleep 0.1
        eval "OFFLD_CACHE='$work/cache.other' $ours $line" || fail 'the other program cannot be linked'
    done
}

# Another cache than that of the row before, which the first round fills.
new_cache() {
    export OFFLD_CACHE=$work/cache.$1
    rm -rf "$OFFLD_CACHE"
}

# ---- what is linked -------------------------------------------------------------------------------------------------------

# What clang would run to link: the words of the last line of -###, without the program's name, which is LLVM's wrapper or the linker.
argv() { "$llvm/bin/clang++" -### "$@" 2>&1 | tail -n 1 | sed 's/^ *"[^"]*" *//'; }

# The same with LLVM's wrapper in it, though there is no device code for it.
wrapper_argv() { argv --offload-link -fuse-ld=lld "$@"; }

# One line for each side, which differ in the output alone: `-o OUT`.
line_for() { # SIDE LINE
    echo "${2//\"OUT\"/\"out.$1\"}"
}

# What the host linker is given in the end: COMMAND (of ours) is run, its objects stay, and the line that it shows last is the floor.
host_line() {
    eval "OFFLD_CACHE=off $1 --save-temps --wrapper-verbose" > "$work/verbose" 2>&1 || { cat "$work/verbose" >&2; fail 'no link to take the floor from'; }
    grep '^ "' "$work/verbose" | tail -n 1 | grep -F "$lld" || { cat "$work/verbose" >&2; fail 'the last command is no host link'; }
}

# Both linkers stubbed: the same line, on which the host linker does nothing.
stubbed() { echo "${1//--linker-path=*ld.lld\"/--linker-path=/bin/true\"}"; }

# Lines of standard input are shell commands; as many at once as there are cores.
in_parallel() { tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} sh -ec '{}' || fail 'the inputs cannot be compiled'; }

# The two programs say the same: what a row that links a program is worth.
agree() {
    local side
    for side in theirs ours; do
        OMP_TARGET_OFFLOAD=mandatory LD_LIBRARY_PATH=$llvm/lib "./out.$side" > "said.$side" 2>&1 || { echo "out.$side fails"; return; }
    done
    cmp -s said.theirs said.ours || echo 'the programs differ'
}

# ---- large images ---------------------------------------------------------------------------------------------------------

# Real code, since it compresses as code objects do; where the libraries of LLVM end, they start again: SKIP-MIB MIB FILE.
code() {
    local libraries=("$llvm"/lib/libLLVM*.a)
    # shellcheck disable=SC2016
    { while :; do cat "${libraries[@]}" || exit 0; done; } 2>/dev/null | tail -c "+$(($1 * 1048576 + 1))" | head -c "$2M" > "$3" || :
    [ "$(stat -c %s "$3")" = $(($2 * 1048576)) ] || fail "no $2 MiB of code from $llvm/lib"
}

# A device compiler that has its images ready, and a copy of LLVM's wrapper that finds this one beside itself. It writes nothing: the
# image gets one more name. So the row is the wrapper's work, not that of two device linkers.
fake_compiler() {
    [ ! -d fake ] || return 0
    mkdir fake
    cp "$theirs" fake/clang-linker-wrapper
    cat > fake/clang <<'EOF'
#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
for word; do
    case $last in -o) out=$word ;; esac
    case $word in -mcpu=*) cpu=${word#-mcpu=} ;; esac
    last=$word
done
exec ln -f "${0%/*}/$cpu" "$out"
EOF
    chmod +x fake/clang
}

# A host object with small device images for these architectures: OBJECT KIND SOURCE ARCH...
fat_object() {
    local object=$1 kind=$2 source=$3 arch images=()
    shift 3
    echo 'int device;' | "$llvm/bin/clang" --target=amdgcn-amd-amdhsa -nogpulib -x c -c - -o device.o
    for arch; do images+=("--image=file=device.o,triple=amdgcn-amd-amdhsa,arch=$arch,kind=$kind"); done
    "$llvm/bin/llvm-offload-binary" -o device.pack "${images[@]}"
    echo "$source" | "$llvm/bin/clang" -O1 -x c -c - -Xclang -fembed-offload-object=device.pack -o "$object"
}
