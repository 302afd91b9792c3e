# shellcheck shell=bash
# Rows of the commands that change finished files, on a library with two large images: beside cp of what comes out, which is the least
# that writing it can cost.

# What runs before of this side left is gone.
edit_settled() {
    rm -f "edited.$1"
}

# What was written is the file that it should be.
edited_right() {
    cmp -s "edited.ours" "edited.theirs" || echo 'it is not the file that it should be'
}

group_edit() {
    local mib=${EDIT:-256} arch line
    fake_compiler
    export OFFLD_CLANG=$work/fake/clang
    code 0 "$mib" fake/gfx906
    code "$mib" "$mib" fake/gfx90a
    # What begins as an archive would be read as one.
    for arch in gfx906 gfx90a; do printf %s "$arch" | dd of="fake/$arch" conv=notrunc status=none; done
    fat_object edit.o openmp 'int host(int x) { return x + 1; }' gfx906 gfx90a
    line=$(wrapper_argv edit.o -shared -Wl,--no-as-needed "-L$llvm/lib" -lomptarget -o OUT)
    # By LLVM's wrapper, as most libraries are.
    eval "fake/clang-linker-wrapper $(line_for edit "$line")" || fail 'the library cannot be linked'
    rm -f fake/gfx*
    export OFFLD_CLANG=$llvm/bin/clang
    mv out.edit library.so
    "$offld" prune --keep gfx90a library.so -o pruned.so >/dev/null
    "$offld" split library.so -d parts >/dev/null
    sync library.so pruned.so parts/*
    row edit-prune "prune one of 2 x $mib MiB out of a library, beside cp of the result" runs="$LARGE_RUNS" before=edit_settled \
        theirs='cp pruned.so edited.theirs' ours="$offld prune --keep gfx90a library.so -o edited.ours" after=edited_right
    row edit-merge "merge the library of its host part and 2 x $mib MiB, beside cp of the result" runs="$LARGE_RUNS" before=edit_settled \
        theirs='cp library.so edited.theirs' ours="$offld merge -o edited.ours $(echo parts/*)" after=edited_right
    rm -rf edited.* parts library.so pruned.so
}
