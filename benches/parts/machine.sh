# shellcheck shell=bash
# Writes benches/RESULTS.md: the table with a description of the machine.

version() { "$@" --version 2>/dev/null | head -n 1; }

# The size of the installed program. A size beyond its bound counts as a row that misses its bound.
program_size() { # to stdout
    local size most
    most=$(bound program MEMORY)
    strip -o stripped "$offld"
    size=$(awk -v bytes="$(stat -c %s stripped)" 'BEGIN { printf "%.1f", bytes / 1048576 }')
    echo "offld itself, stripped: $size MiB (at most $most)."
    awk -v size="$size" -v most="$most" 'BEGIN { exit size + 0 > most + 0 }' || { say "offld is larger than $most MiB"; misses=$((misses + 1)); }
}

results() { # to stdout, of $work/table
    local commit
    commit=$(git -C "$benches" rev-parse --short=12 HEAD 2>/dev/null || echo 'no commit')
    git -C "$benches" diff --quiet HEAD -- ../src ../Cargo.toml ../Cargo.lock ../build.rs 2>/dev/null || commit="$commit and changes"
    cat <<EOF
# offld compared with LLVM's tools

This table compares the time and memory of offld and of LLVM 22's tools. [Benchmarks](../docs/dev/benchmarks.md) explains the rows.

\`$command_line\` wrote it; \`make bench\` prints the same table.

| | |
|---|---|
| date | $(date -u +%Y-%m-%d) |
| CPU | $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores |
| memory | $(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo) |
| temporary files | $(df --output=fstype "$work" | tail -n 1) |
| system | $(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r) |
| LLVM | $(version "$llvm/bin/clang") |
| host linker | $(version "$llvm/bin/ld.lld") |
| offld | $(version "$offld"), $commit |
| measured with | $(version hyperfine), $RUNS runs, $LARGE_RUNS for rows that take seconds |

EOF
    cat "$work/table"
    echo
    cat "$work/program-size"
    table_legend
    echo
    cat "$benches/notes.md"
}
