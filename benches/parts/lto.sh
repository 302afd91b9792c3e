# shellcheck shell=bash
# Rows of link-time optimization for one GPU: cached ThinLTO units, and full LTO in partitions.

lto_flags=(-O2 -fopenmp --offload-arch=gfx90a -nogpulib)
lto_line=(-fuse-ld=lld -fopenmp --offload-arch=gfx90a -nogpulib -Xoffload-linker --unresolved-symbols=ignore-all)

# Kernels with slow code generation but a fast compile step: loops over matrices, which only the link unrolls.
lto_unit() { # N KERNELS
    local k
    echo '#ifndef TUNED'; echo '#define TUNED 1'; echo '#endif'
    for ((k = 0; k < $2; k++)); do
        cat <<EOF
void lto_$1_$k(float *data, int count) {
#pragma omp target map(tofrom : data[0 : count])
  for (int i = 0; i + 32 < count; i += 32) {
    float a[16], b[16], c[16];
    for (int n = 0; n < 16; ++n) {
      a[n] = data[i + n] * $k.5f + TUNED;
      b[n] = data[i + 16 + n] / (n + $1.25f);
    }
    for (int r = 0; r < 4; ++r)
      for (int s = 0; s < 4; ++s) {
        c[r * 4 + s] = 0;
        for (int n = 0; n < 4; ++n)
          c[r * 4 + s] += a[r * 4 + n] * b[n * 4 + s];
      }
    for (int n = 0; n < 16; ++n)
      data[i + n] = c[n] > $k ? c[n] / b[n] : a[n];
  }
}
EOF
    done
}

lto_compile() { # FLAGS SOURCE OBJECT
    echo "'$llvm/bin/clang' ${lto_flags[*]} $1 -c '$2' -o '$3'"
}

# before: one translation unit is new.
lto_changed() { # SIDE ROUND
    cp "lto/changed.$2.o" lto/thin.0.o
}

# before: an empty cache.
lto_cold() {
    rm -rf "$OFFLD_CACHE"
}

lto_objects() { # MODE UNITS
    local n
    for ((n = 0; n < $2; n++)); do echo "lto/$1.$n.o"; done
    echo "lto/$1.main.o"
}

# Prints the percentage of code generation in a device link, from ld.lld's time trace: LINE.
code_generation() {
    local trace=$PWD/lto/trace.json
    if ! eval "OFFLD_CACHE=off $ours $(line_for floor "$1") --device-linker=--time-trace=$trace" > "$work/verbose" 2>&1 || [ ! -s "$trace" ]; then
        cat "$work/verbose" >&2
        fail "ld.lld wrote no time trace $trace (see above)"
    fi
    tr '{' '\n' < "$trace" | awk '
        match($0, /"dur": *[0-9]+/) { took = substr($0, RSTART, RLENGTH); sub(/.*:/, "", took) }
        /"name": *"Total codegen"/ { codegen = took }
        /"name": *"Total ExecuteLinker"/ { all = took }
        END { if (!all || !codegen) exit 1; printf "%.0f", codegen / all * 100 }' || fail "no code generation in the time trace $trace"
}

group_lto() {
    local n line floor share units=${LTO_UNITS:-40} parts=${LTO_PARTS_UNITS:-16} runs=$LARGE_RUNS
    mkdir lto
    say "compiling $units units for one GPU with LTO"
    for ((n = 0; n < units || n < parts; n++)); do lto_unit "$n" "${LTO_KERNELS:-2}" > "lto/$n.c"; done
    echo 'int main(void) { return 0; }' > lto/main.c
    {
        for ((n = 0; n < units; n++)); do lto_compile -foffload-lto=thin "lto/$n.c" "lto/thin.$n.o"; done
        for ((n = 0; n < parts; n++)); do lto_compile -foffload-lto=full "lto/$n.c" "lto/full.$n.o"; done
        for ((n = 0; n <= runs + 1; n++)); do lto_compile "-foffload-lto=thin -DTUNED=$((n + 2))" lto/0.c "lto/changed.$n.o"; done
        for n in thin full; do lto_compile "-foffload-lto=$n" lto/main.c "lto/$n.main.o"; done
    } | in_parallel

    # shellcheck disable=SC2046
    line=$(argv "${lto_line[@]}" -foffload-lto=thin $(lto_objects thin "$units") -o OUT)
    floor=$(host_line "$ours $(line_for floor "$line")") || exit 1
    row lto-thin-one "$units TUs with ThinLTO for one GPU, one changed" floor_is='ld.lld alone' floor="$floor" runs="$runs" \
        theirs="$theirs $(line_for theirs "$line")" ours="$ours $(line_for ours "$line")" before=lto_changed
    row lto-thin-none "$units TUs with ThinLTO for one GPU, nothing changed, compared with the host link alone" theirs="$floor" \
        ours="$ours $(line_for ours "$line")"

    # shellcheck disable=SC2046
    line=$(argv "${lto_line[@]}" -foffload-lto=full $(lto_objects full "$parts") -o OUT)
    floor=$(host_line "$ours $(line_for floor "$line")") || exit 1
    share=$(code_generation "$line") || exit 1
    [ "$share" -ge 60 ] || say "code generation is only $share % of the link: the bound expects at least 60 %"
    row lto-parts "$parts TUs with full LTO for one GPU, two parts, compared with one ($share % are code generation)" floor_is='ld.lld alone' floor="$floor" \
        runs="$runs" theirs="$ours $(line_for theirs "$line")" ours="$ours $(line_for ours "$line") --wrapper-lto-partitions=2" before=lto_cold
}
