# shellcheck shell=bash
# Measures rows of the table: two commands and a floor run in turns, and the medians are compared with the bounds of bounds.txt. Sourced;
# $work is the directory of measurements, $RUNS and $LARGE_RUNS are the numbers of runs.

RUNS=${RUNS:-15} LARGE_RUNS=${LARGE_RUNS:-5} PAIRED_RUNS=${PAIRED_RUNS:-60}
misses=0

say() { echo "bench: $*" >&2; }

# Skipped rows, with the reasons. They are reported at once, and again below the table.
left_out=()
leave_out() { # WHY ROW...
    local why=$1
    shift
    say "skipped: $*: $why"
    left_out+=("$*: $why")
}

left_out_rows() {
    [ "${#left_out[@]}" = 0 ] || printf 'Skipped: %s.\n' "${left_out[@]}"
}

fail() {
    say "$@"
    exit 1
}

table_heading() {
    echo "| what | floor | LLVM's | offld | ratio | at most | LLVM's over the floor | offld over the floor | LLVM's memory | offld's memory | at most | |"
    echo '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|'
}

table_legend() {
    cat <<'EOF'
Times are medians; the ratio is offld's time divided by LLVM's. ‡: the floor is subtracted first, because both sides do little more than run the host linker.
Paired: the median of the differences to the floor within each round, for bounds in milliseconds.
Memory is the peak of the largest process. If it has a bound, it is the wrapper's own, with both linkers stubbed.
§: the device compiler has its images ready, so the row measures the wrapper and the host linker.
EOF
}

# Prints a bound of a row, or nothing if it has none: KEY TIME|MEMORY|OVER.
bound() {
    awk -v key="$1" -v column="$2" '
        /^#/ || $1 != key { next }
        { value = column == "TIME" ? $2 : column == "MEMORY" ? $3 : $4; found = 1 }
        END { if (!found) exit 1; print value == "-" ? "" : value }' "${BOUNDS:-$benches/bounds.txt}" || fail "no row '$1' in bounds.txt"
}

# Runs a command once and appends its time and CPU time to the row's, unless the round is the first: SIDE ROUND COMMAND.
once() {
    if ! hyperfine -N --style none --runs 1 --export-csv "$work/one.csv" -n one "$3" >/dev/null 2>"$work/errors"; then
        cat "$work/errors" >&2
        eval "$3" >&2 || :
        fail "a measured command failed (see above): $(printf %.2000s "$3")"
    fi
    [ "$2" = 0 ] || awk -F, -v side="$1" -v round="$2" 'NR == 2 { print side, $2, $5 + $6, round }' "$work/one.csv" >> "$work/times"
}

median() { # SIDE [COLUMN]: in seconds; empty if SIDE was not run
    awk -v side="$1" -v column="${2:-2}" '$1 == side { print $column }' "$work/times" | sort -g |
        awk '{ all[NR] = $1 } END { if (NR) print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

# The time of ours over the floor: the median of the differences within each round, in milliseconds. Within a round, both run one after the
# other, so changes of the machine's speed cancel out.
paired_difference() {
    awk '$1 == "floor" { floor[$4] = $2 } $1 == "ours" { ours[$4] = $2 } END { for (at in ours) if (at in floor) print (ours[at] - floor[at]) * 1000 }' \
        "$work/times" | sort -g | awk '{ all[NR] = $1 } END { if (NR) printf "%.1f", (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

# The median of the ratios of ours to theirs within each round.
paired_ratio() {
    awk '$1 == "theirs" { theirs[$4] = $2 } $1 == "ours" { ours[$4] = $2 } END { for (at in ours) if (at in theirs) print ours[at] / theirs[at] }' \
        "$work/times" | sort -g | awk '{ all[NR] = $1 } END { if (NR) print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'
}

peak() { # COMMAND: the peak resident size of the largest process, in MiB
    eval "/usr/bin/time -v -o '$work/peak' $1" >/dev/null 2>"$work/errors" || { cat "$work/errors" >&2; fail "a measured command failed (see above): $(printf %.2000s "$1")"; }
    awk -F': ' '/Maximum resident set size/ { printf "%.0f", $2 / 1024 }' "$work/peak"
}

# row KEY TITLE NAME=VALUE…: measures, and prints a row.
#   floor_is, floor       the description and the command of the minimum work that any tool must do
#   theirs, ours          the commands
#   before                a function that runs untimed before each run, with SIDE and ROUND: empties a cache or replaces an input
#   after                 a function that checks the outputs, and prints what is wrong, or nothing
#   runs                  the number of counted rounds; one more round runs first and does not count
#   over_floor            if not empty, the floor is subtracted before the ratio
#   paired                if not empty, the ratio is the median of the ratios within each round
#   memory_theirs, _ours  the commands for the memory columns, if different
row() {
    local key=$1 title=$2 floor_is='' floor='' theirs='' ours='' before='' after='' runs=$RUNS over_floor='' paired='' memory_theirs='' memory_ours=''
    shift 2
    local setting side round wrong='' floor_time theirs_time ours_time theirs_peak='' ours_peak
    for setting; do printf -v "${setting%%=*}" %s "${setting#*=}"; done
    say "$title"
    if [ -n "$theirs" ]; then
        [ -z "$before" ] || "$before" theirs $((runs + 1))
        theirs_peak=$(peak "${memory_theirs:-$theirs}")
    fi
    [ -z "$before" ] || "$before" ours $((runs + 1))
    ours_peak=$(peak "${memory_ours:-$ours}")
    local attempt
    for attempt in 1 2; do
        : > "$work/times"
        for ((round = 0; round <= runs; round++)); do
            local sides=(floor theirs ours)
            [ $((round % 2)) = 0 ] || sides=(floor ours theirs)
            for side in "${sides[@]}"; do
                [ -n "${!side}" ] || continue
                [ -z "$before" ] || "$before" "$side" "$round"
                once "$side" "$round" "${!side}"
            done
        done
        # CPU times are a cross-check if other load runs on the machine.
        for side in floor theirs ours; do
            [ -z "${!side}" ] || say "    CPU time, $side: $(median "$side" 3) s"
        done
        ! judge || break
        # Other load slows some rounds; a change of the program slows all of them.
        if [ "$attempt" = 1 ]; then
            say '    beyond a bound: measured again, with more rounds'
            runs=$((2 * runs))
        else
            misses=$((misses + 1))
        fi
    done
    tee -a "$work/table" < "$work/row"
}

# Writes a row into $work/row, and fails if it is beyond a bound. Uses the variables of `row`.
judge() {
    floor_time=$(median floor) theirs_time=$(median theirs) ours_time=$(median ours)
    [ -z "$after" ] || wrong=$("$after")
    local ratio_in_rounds=''
    [ -z "$paired" ] || ratio_in_rounds=$(paired_ratio)
    local time_bound memory_bound over_bound
    time_bound=$(bound "$key" TIME) memory_bound=$(bound "$key" MEMORY) over_bound=$(bound "$key" OVER)
    awk -v title="$title" -v floor_is="$floor_is" -v floor="$floor_time" -v theirs="$theirs_time" -v ours="$ours_time" \
        -v over_floor="$over_floor" -v bound="$time_bound" -v over_bound="$over_bound" -v paired="$(paired_difference)" -v limit="$memory_bound" -v a="$theirs_peak" -v b="$ours_peak" -v wrong="$wrong" -v in_rounds="$ratio_in_rounds" '
        function time(s) { return s == "" ? "–" : s < 10 ? sprintf("%.1f ms", s * 1000) : sprintf("%.1f s", s) }
        function over(s) { return s == "" || floor == "" ? "–" : (s < floor ? "-" : "+") time(s < floor ? floor - s : s - floor) }
        function mark(text) { marks = marks (marks == "" ? "" : ", ") text }
        BEGIN {
            base = over_floor == "" ? 0 : floor
            # At or below the floor, no time remains to compare.
            if (theirs != "") ratio = theirs > base ? (ours > base ? (ours - base) / (theirs - base) : 0) : ours > base ? 99 : 0
            if (in_rounds != "") ratio = in_rounds
            # The rounded ratio, as printed, is compared with the bound.
            if (theirs != "") ratio = sprintf(bound != "" && bound + 0 < 0.1 ? "%.3f" : "%.2f", ratio)
            if (bound != "" && theirs != "" && ratio + 0 > bound + 0) mark("**misses its bound**")
            if (over_bound != "" && paired + 0 > over_bound + 0) mark("**too long over the floor**")
            if (over_bound != "") mark(sprintf("paired +%s ms, at most %s", paired, over_bound))
            if (limit != "" && b + 0 > limit + 0) mark("**too much memory**")
            if (wrong != "") mark("**" wrong "**")
            printf "| %s | %s%s | %s | %s | %s%s | %s | %s | %s | %s | %s | %s | %s |\n", title, floor_is, floor == "" ? "–" : " " time(floor),
                time(theirs), time(ours), ratio == "" ? "–" : ratio, over_floor == "" ? "" : " ‡", bound == "" ? "–" : bound,
                over(theirs), over(ours), a == "" ? "–" : a " MiB", b " MiB", limit == "" ? "–" : limit " MiB", marks
            exit marks ~ /\*\*/
        }' > "$work/row"
}

finish() { # CHECK: if not empty, fails if a row is beyond its bound
    if [ "$misses" != 0 ]; then
        say "$misses rows are beyond a bound (marked ** in the table)"
        [ -z "$1" ] || exit 1
    fi
}
