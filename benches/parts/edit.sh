# shellcheck shell=bash
# Rows of the commands that edit finished files, on a library with two large images. They are compared with cp of the result, the minimum
# cost of writing it.

# Removes the output of this side's earlier run.
edit_settled() {
    rm -f "edited.$1"
}

# Checks that offld wrote the expected file.
edited_right() {
    cmp -s "edited.ours" "edited.theirs" || echo 'the written file is wrong'
}

group_edit() {
    local mib=${EDIT:-256} arch line
    fake_compiler
    export OFFLD_CLANG=$work/fake/clang
    code 0 "$mib" fake/gfx906
    code "$mib" "$mib" fake/gfx90a
    # Images must not start with an archive's magic, or they would be read as archives.
    for arch in gfx906 gfx90a; do printf %s "$arch" | dd of="fake/$arch" conv=notrunc status=none; done
    fat_object edit.o openmp 'int host(int x) { return x + 1; }' gfx906 gfx90a
    line=$(wrapper_argv edit.o -shared -Wl,--no-as-needed "-L$llvm/lib" -lomptarget -o OUT)
    # Linked by LLVM's wrapper, like most libraries.
    eval "fake/clang-linker-wrapper $(line_for edit "$line")" || fail 'cannot link the library with LLVM'\''s wrapper'
    rm -f fake/gfx*
    export OFFLD_CLANG=$llvm/bin/clang
    mv out.edit library.so
    "$offld" prune --keep gfx90a library.so -o pruned.so >/dev/null
    "$offld" split library.so -d parts >/dev/null
    sync library.so pruned.so parts/*
    row edit-prune "prune one of 2 x $mib MiB out of a library, compared with cp of the result" runs="$LARGE_RUNS" before=edit_settled \
        theirs='cp pruned.so edited.theirs' ours="$offld prune --keep gfx90a library.so -o edited.ours" after=edited_right
    row edit-merge "merge the library of its host part and 2 x $mib MiB, compared with cp of the result" runs="$LARGE_RUNS" before=edit_settled \
        theirs='cp library.so edited.theirs' ours="$offld merge -o edited.ours $(echo parts/*)" after=edited_right
    rm -rf edited.* parts library.so pruned.so
}
