# shellcheck shell=bash
# Rows of links whose device images are large, so that moving them is what costs. The device compiler has them ready.

large_main='#include <stdio.h>
int table[1 << 20];
int main(void) { puts("runs"); return table[12345]; }'

# What earlier runs left is gone or on the disk: writing it does not count for the next.
settled() {
    rm -rf out.floor "out.$1"
    local left=(out.*)
    [ ! -e "${left[0]}" ] || sync "${left[@]}"
}

# KEY TITLE LINE [NAME=VALUE...]: memory is the wrapper's own.
image_row() {
    local floor own
    floor=$(host_line "$ours $(line_for floor "$3")") || exit 1
    own=$(stubbed "$3")
    row "$1" "$2" runs="$LARGE_RUNS" before=settled floor_is='ld.lld alone' floor="$floor" \
        theirs="fake/clang-linker-wrapper $(line_for theirs "$3")" ours="$ours $(line_for ours "$3")" \
        memory_theirs="fake/clang-linker-wrapper $(line_for theirs "$own")" memory_ours="$ours $(line_for ours "$own")" "${@:4}"
    # The images and objects that the floor linked.
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
    cc -std=c11 -shared -fPIC "$benches/../runtime-stubs/hip.c" -o libamdhip64.so
    fat_object hip.o hip "$large_main" gfx906 gfx90a
    line=$(wrapper_argv hip.o -Wl,--no-as-needed -L. -lamdhip64 -o OUT)
    image_row images-hip "$mib MiB of HIP images §" "$line" after=registers
    image_row images-hip-compressed "$mib MiB of HIP images, compressed §" "$line --compress" after=registers_no_larger
    rm -f fake/gfx*
    export OFFLD_CLANG=$llvm/bin/clang
}

# What has images in it runs, too: it registers them first.
registers() {
    local said
    said=$(LD_LIBRARY_PATH=$llvm/lib:. ./out.ours 2>&1) && [[ $said = *runs* ]] || echo "the program does not run: $said"
}

no_larger() {
    local a b
    a=$(stat -c %s out.theirs) b=$(stat -c %s out.ours)
    # As large, but for what the linker makes of names.
    [ "$b" -le $((a + 4096)) ] || echo "larger: $((b - a)) bytes more"
}

registers_no_larger() {
    registers
    no_larger
}

# LLVM's wrapper does not link this: relocations are out of range.
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
