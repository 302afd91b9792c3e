# shellcheck shell=bash
# Rows of links with large device images, whose cost is moving the images. The device compiler has them ready.

large_main='#include <stdio.h>
int table[1 << 20];
int main(void) { puts("runs"); return table[12345]; }'

# Removes or syncs the output of earlier runs, so that its writeback does not slow the next run.
settled() {
    rm -rf out.floor "out.$1"
    local left=(out.*)
    [ ! -e "${left[0]}" ] || sync "${left[@]}"
}

# KEY TITLE LINE [NAME=VALUE...]: the memory is the wrapper's own, without the linker's.
image_row() {
    local floor own
    local late=--wrapper-late-images=on setting rest=()
    for setting in "${@:4}"; do
        case $setting in ours_more=*) late=${setting#ours_more=} ;; *) rest+=("$setting") ;; esac
    done
    floor=$(host_line "$ours $(line_for floor "$3")") || exit 1
    # A late link needs a program to write images into, so its stub linker has the program ready.
    own=$(stubbed "$3")
    if [ "$late" = --wrapper-late-images=on ]; then
        ready_linker fake/ld.bfd
        rm -f fake/program
        own="env SAVED=$work/fake/program $ours $(line_for ours "${3//--linker-path=*ld.lld\"/--linker-path=$work/fake/ld.bfd\"}") $late"
        eval "$own" || fail 'the late link failed (see above)'
    else
        own="$ours $(line_for ours "$own") $late"
    fi
    row "$1" "$2" runs="$LARGE_RUNS" before=settled floor_is='ld.lld alone' floor="$floor" \
        theirs="fake/clang-linker-wrapper $(line_for theirs "$3")" ours="$ours $(line_for ours "$3") $late" \
        memory_theirs="fake/clang-linker-wrapper $(line_for theirs "$(stubbed "$3")")" \
        memory_ours="$own" "${rest[@]}"
    # The images and objects of the floor.
    rm -f out.*
}

group_images() {
    local mib=${IMAGES:-512} half line
    half=$((mib / 2))
    fake_compiler
    export OFFLD_CLANG=$work/fake/clang
    code 0 "$half" fake/gfx906
    code "$half" "$half" fake/gfx90a
    fat_object openmp.o openmp "$large_main" gfx906 gfx90a
    line=$(wrapper_argv openmp.o -Wl,--no-as-needed "-L$llvm/lib" -lomptarget -o OUT)
    image_row images-openmp "$mib MiB of OpenMP images §" "$line" after=registers
    image_row images-openmp-early "$mib MiB of OpenMP images, not late §" "$line" after=registers ours_more=--wrapper-late-images=off
    cc -std=c11 -shared -fPIC "$benches/../runtime-stubs/hip.c" -o libamdhip64.so
    fat_object hip.o hip "$large_main" gfx906 gfx90a
    line=$(wrapper_argv hip.o -Wl,--no-as-needed -L. -lamdhip64 -o OUT)
    image_row images-hip "$mib MiB of HIP images §" "$line" after=registers
    image_row images-hip-compressed "$mib MiB of HIP images, compressed §" "$line --compress" after=registers_no_larger
    start_rows 100
    rm -f fake/gfx*
    export OFFLD_CLANG=$llvm/bin/clang
}

# Rows of the start of a program with an image of MIB in a file beside it, which the machine's devices do not need, or do. The floor is the
# same program with the image in it. HIP's runtime is a library that does nothing: the test runtime would read the image.
start_rows() { # MIB
    local line over='start of a program with an image of'
    rm -f fake/gfx*
    code 0 "$1" fake/gfx90a
    fat_object start.o hip "$large_main" gfx90a
    cc -std=c11 -shared -fPIC -x c - -o libamdhip64.so <<'EOF'
static void *handle;
void **__hipRegisterFatBinary(void *wrapper) { (void)wrapper; return &handle; }
void __hipRegisterFunction(void) {}
void __hipRegisterVar(void) {}
void __hipRegisterManagedVar(void) {}
void __hipRegisterSurface(void) {}
void __hipRegisterTexture(void) {}
void __hipUnregisterFatBinary(void **handle) { (void)handle; }
EOF
    line=$(wrapper_argv start.o -Wl,--no-as-needed -L. "-Wl,-rpath,$work" -lamdhip64 -o OUT)
    eval "$ours $(line_for inline "$line")" || fail 'a link failed (see above)'
    eval "$ours $(line_for external "$line") --wrapper-external-images" || fail 'a link failed (see above)'
    if compgen -G '/sys/class/kfd/kfd/topology/nodes/*/properties' > /dev/null; then
        leave_out 'the machine may have a GPU for the image' start-absent
    else
        row start-absent "$over $1 MiB in a file that fits no device" runs="$PAIRED_RUNS" floor_is='image in the program' floor=./out.inline \
            ours=./out.external
    fi
    # With this variable, the code for all AMD GPUs is loaded.
    row start-fits "$over $1 MiB in a file that fits" runs="$PAIRED_RUNS" floor_is='image in the program' \
        floor='env HSA_OVERRIDE_GFX_VERSION=9.0.10 ./out.inline' ours='env HSA_OVERRIDE_GFX_VERSION=9.0.10 ./out.external'
    rm -rf out.*
}

# Checks that the program runs, which registers its images first.
registers() {
    local printed
    printed=$(LD_LIBRARY_PATH=$llvm/lib:. ./out.ours 2>&1) && [[ $printed = *runs* ]] || echo "the program does not run: $printed"
}

no_larger() {
    local a b
    a=$(stat -c %s out.theirs) b=$(stat -c %s out.ours)
    # Equal sizes, except for the linker's symbol names, and for the padding to the page where late images start.
    [ "$b" -le $((a + 8192)) ] || echo "larger: $((b - a)) bytes more"
}

registers_no_larger() {
    registers
    no_larger
}

# Creates a host linker FILE that sleeps for $SECONDS_TAKEN, then copies the earlier output from $SAVED. Without that file it links, and saves.
ready_linker() {
    cat > ready.c <<'EOF'
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static int copy(const char *from, const char *to) {
    static char buffer[1 << 16];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    if (!out) return 1;
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, in)) > 0;) if (fwrite(buffer, 1, n, out) != n) return 1;
    return fclose(out) || chmod(to, 0755);
}
int main(int argc, char **argv) {
    const char *saved = getenv("SAVED"), *seconds = getenv("SECONDS_TAKEN");
    sleep(seconds ? atoi(seconds) : 0);
    /* The output of a late link is the last argument. */
    if (saved && access(saved, R_OK) == 0) return copy(saved, argv[argc - 1]);
    pid_t child = fork();
    if (child == 0) { argv[0] = "/usr/bin/ld.bfd"; return execv(argv[0], argv); }
    int status = 1;
    if (waitpid(child, &status, 0) < 0 || status != 0) return 1;
    return saved ? copy(argv[argc - 1], saved) : 0;
}
EOF
    cc -O1 ready.c -o "$1"
}

# A device link of one second and a host link of one second.
group_late() {
    local line
    mkdir -p slow
    ready_linker slow/ld.bfd
    cat > slow/clang <<'EOF'
#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
case " $* " in *" -### "*) exit 1 ;; esac
for arg; do
    case $last in -o) out=$arg ;; esac
    last=$arg
done
sleep 1
head -c 10M /dev/zero > "$out"
EOF
    chmod +x slow/clang
    cp "$theirs" slow/clang-linker-wrapper
    export OFFLD_CLANG=$work/slow/clang
    fat_object late.o openmp "$large_main" gfx90a
    line=$(wrapper_argv late.o -Wl,--no-as-needed "-L$llvm/lib" -lomptarget -o OUT)
    line=${line//--linker-path=*ld.lld\"/--linker-path=$work/slow/ld.bfd\"}
    SAVED=$work/slow/program SECONDS_TAKEN=0 eval "$ours $(line_for ours "$line") --wrapper-late-images=on" || fail 'the late link failed (see above)'
    row late 'a device link and a host link of 1 s each' over_floor=1 runs="$LARGE_RUNS" floor_is='sleep 1' floor='sleep 1' \
        theirs="env SECONDS_TAKEN=1 slow/clang-linker-wrapper $(line_for theirs "$line")" \
        ours="env SECONDS_TAKEN=1 SAVED=$work/slow/program $ours $(line_for ours "$line") --wrapper-late-images=on" after=registers
    export OFFLD_CLANG=$llvm/bin/clang
}

# Only offld's side: with LLVM's wrapper, relocations are out of range.
group_huge() {
    local gib=${HUGE:-3} arch archs=(gfx906 gfx90a gfx942 gfx1030 gfx1100) line floor
    archs=("${archs[@]:0:gib}")
    fake_compiler
    export OFFLD_CLANG=$work/fake/clang
    for arch in "${archs[@]}"; do
        code "$((${#arch} * 100))" 1024 "fake/$arch"
        printf %s "$arch" | dd of="fake/$arch" conv=notrunc status=none
    done
    fat_object huge.o openmp "$large_main" "${archs[@]}"
    line=$(wrapper_argv huge.o -Wl,--no-as-needed "-L$llvm/lib" -lomptarget -o OUT)
    floor=$(host_line "$ours $(line_for floor "$line")") || exit 1
    row huge "$gib GiB of OpenMP images, linked and run §" runs="${HUGE_RUNS:-3}" before=settled floor_is='ld.lld alone' floor="$floor" \
        ours="$ours $(line_for ours "$line")" memory_ours="$ours $(line_for ours "$(stubbed "$line")")" after=registers
    rm -rf out.* fake/gfx*
    export OFFLD_CLANG=$llvm/bin/clang
}
