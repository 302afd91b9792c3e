# shellcheck shell=bash
# Shared code of the row groups: tools, command lines as clang writes them, the device link cache, stand-ins for a device compiler.
# Sourced, with the temporary directory as working directory.

llvm=${LLVM:-/usr/lib/llvm-22}
links=$work/links
lld=$llvm/bin/ld.lld
theirs=$llvm/bin/clang-linker-wrapper
ours=$links/clang-linker-wrapper
offload=(-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu)

need_tools() {
    local tool
    for tool in hyperfine /usr/bin/time "$llvm"/bin/{clang++,clang-linker-wrapper,ld.lld,clang-offload-bundler,llvm-offload-binary,llvm-offload-wrapper,llvm-objcopy} "$offld"; do
        command -v "$tool" >/dev/null || fail "$tool not found: run make setup build"
    done
}

# Drops the page cache, if permitted, and reads the measured programs again. Earlier load leaves the pages of libraries scattered, and a
# linker that maps 150 MB of them then starts a third slower. Both sides and the floor benefit.
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
    export OFFLD_CLANG=$llvm/bin/clang # the same one that LLVM's wrapper uses, which is in its own directory
    mkdir -p "$TMPDIR" "$work/bin"
    # -fuse-ld=lld and linkers by name then find LLVM 22's.
    export PATH=$llvm/bin:$PATH
}

# ---- caches: values of `before` in rows -------------------------------------------------------------------------------------

# An empty cache, as for the very first link. LLVM's side has no cache.
first() {
    [ "$1" != ours ] || rm -rf "$OFFLD_CACHE"
}

# A cache with the links of another program: every device link is a miss, but the answers of clang are cached.
cold() {
    [ "$1" = ours ] || return 0
    rm -rf "$OFFLD_CACHE"
    cp -a "$work/cache.other" "$OFFLD_CACHE"
}

# The same for two sides of offld.
cold_for_both() { cold ours; }

# Creates the cache for `cold`, by a link of another program for the same kind of device. OPTIONS are clang's.
other_program() { # OPTIONS...
    local line
    rm -rf "$work/cache.other"
    echo 'int main() { int x = 0; _Pragma("omp target map(tofrom: x)") x = 1; return x - 1; }' > other.cpp
    "$llvm/bin/clang++" -O2 "$@" -c other.cpp -o other.o
    line=$(argv -fuse-ld=lld "$@" other.o -o other)
    # Twice, because offld does not trust the timestamps of files that were written a moment ago.
    for _ in 1 2; do
        sleep 0.1
        eval "OFFLD_CACHE='$work/cache.other' $ours $line" || fail 'cannot link other.cpp, which fills the cache'
    done
}

# Selects a new, empty cache, which the first round fills.
new_cache() {
    export OFFLD_CACHE=$work/cache.$1
    rm -rf "$OFFLD_CACHE"
}

# ---- command lines --------------------------------------------------------------------------------------------------------

# The arguments of the command with which clang would link, from the last line of -###, without the program (LLVM's wrapper or the linker).
argv() { "$llvm/bin/clang++" -### "$@" 2>&1 | tail -n 1 | sed 's/^ *"[^"]*" *//'; }

# The same for LLVM's wrapper, even without device code.
wrapper_argv() { argv --offload-link -fuse-ld=lld "$@"; }

# The command line for one side; the sides differ only in the output (`-o OUT`).
line_for() { # SIDE LINE
    echo "${2//\"OUT\"/\"out.$1\"}"
}

# Prints the final host link, which is the floor: runs COMMAND (offld's), keeps its objects, and takes the last command that it prints.
host_line() {
    eval "OFFLD_CACHE=off $1 --save-temps --wrapper-verbose" > "$work/verbose" 2>&1 || { cat "$work/verbose" >&2; fail 'the link that gives the floor failed (see above)'; }
    grep '^ "' "$work/verbose" | tail -n 1 | grep -F "$lld" || { cat "$work/verbose" >&2; fail 'the last printed command is not a host link (see above)'; }
}

# The same command line with a host linker that does nothing.
stubbed() { echo "${1//--linker-path=*ld.lld\"/--linker-path=/bin/true\"}"; }

# Runs the shell commands on stdin, one per line, one job per CPU core.
in_parallel() { tr '\n' '\0' | xargs -0 -P "$(nproc)" -I{} sh -ec '{}' || fail 'cannot compile the inputs (see above)'; }

# Checks that both linked programs run and print the same.
agree() {
    local side
    for side in theirs ours; do
        OMP_TARGET_OFFLOAD=mandatory LD_LIBRARY_PATH=$llvm/lib "./out.$side" > "printed.$side" 2>&1 || { echo "out.$side fails"; return; }
    done
    cmp -s printed.theirs printed.ours || echo 'the programs print different output'
}

# ---- large images ---------------------------------------------------------------------------------------------------------

# Writes real code, which compresses like code objects, from LLVM's libraries, repeated if they are too short: SKIP-MIB MIB FILE.
code() {
    local libraries=("$llvm"/lib/libLLVM*.a)
    # shellcheck disable=SC2016
    { while :; do cat "${libraries[@]}" || exit 0; done; } 2>/dev/null | tail -c "+$(($1 * 1048576 + 1))" | head -c "$2M" > "$3" || :
    [ "$(stat -c %s "$3")" = $(($2 * 1048576)) ] || fail "cannot read $2 MiB of code from $llvm/lib"
}

# Creates a device compiler with ready images, and next to it a copy of LLVM's wrapper, which looks for clang in its own directory. The
# compiler only adds a hard link to an image, so the row measures the wrappers, not two device linkers.
fake_compiler() {
    [ ! -d fake ] || return 0
    mkdir fake
    cp "$theirs" fake/clang-linker-wrapper
    cat > fake/clang <<'EOF'
#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
for arg; do
    case $last in -o) out=$arg ;; esac
    case $arg in -mcpu=*) cpu=${arg#-mcpu=} ;; esac
    last=$arg
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
