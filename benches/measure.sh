# shellcheck shell=bash
# What the benchmarks share: rows of a table, in which two commands take turns. Sourced; $work is a folder for what is measured.
work=${work:-}

failures=0
row='%-46s %12s %12s %11s %7s%s\n'
heading() {
    # shellcheck disable=SC2059 # the format is ours
    printf "\n$row" "$@" ''
}

# race TITLE COMMAND-OF-THEIRS COMMAND-OF-OURS [LIMIT]: a row of the table.
# The two take turns in rounds, and each one's best round counts: on a machine that does other things meanwhile, the rest is
# the other things. LIMIT is what --check forbids: "ratio R", or "extra MS".
race() {
    local round csv=$work/times.csv
    : > "$csv"
    for ((round = 0; round < ${ROUNDS:-3}; round++)); do
        hyperfine -N --style none --warmup "${WARMUP:-2}" --runs "${RUNS:-8}" --export-csv "$work/round.csv" \
            -n theirs "$2" -n ours "$3" >/dev/null 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
        tail -n +2 "$work/round.csv" >> "$csv"
    done
    awk -F, -v title="$1" -v limit="${4:-}" -v row="$row" '
        !($1 in best) || $4 < best[$1] { best[$1] = $4 }
        !($1 in least) || $7 < least[$1] { least[$1] = $7 }
        !($1 in cpu) || $5 + $6 < cpu[$1] { cpu[$1] = $5 + $6 }
        END {
            extra = (best["ours"] - best["theirs"]) * 1000; ratio = best["ours"] / best["theirs"]
            split(limit, l, " ")
            # Beyond the limit in the median, in the fastest run and in CPU time: fewer is noise (ld.bfd alone varies by tens of ms).
            bad = l[1] == "ratio" && ratio > l[2] && least["ours"] / least["theirs"] > l[2] && cpu["ours"] / cpu["theirs"] > l[2] \
               || l[1] == "extra" && extra > l[2] && (least["ours"] - least["theirs"]) * 1000 > l[2] && (cpu["ours"] - cpu["theirs"]) * 1000 > l[2]
            printf row, title, sprintf("%.1f ms", best["theirs"] * 1000), sprintf("%.1f ms", best["ours"] * 1000),
                sprintf("%+.1f ms", extra), sprintf("%.2f", ratio), bad ? "  BEYOND THE LIMIT (" limit ")" : ""
            exit bad
        }' "$csv" || failures=$((failures + 1))
}

peak() { # COMMAND: the largest resident size, in MiB, that it or one of its children reached
    eval "/usr/bin/time -f %M -o '$work/peak' $1" >/dev/null 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
    awk 'END { printf "%.0f", $1 / 1024 }' "$work/peak"
}

memory() { # TITLE COMMAND-OF-THEIRS COMMAND-OF-OURS [MIB]: a row; more than MIB is what --check forbids
    local a b beyond=
    a=$(peak "$2")
    b=$(peak "$3")
    if [ -n "${4:-}" ] && [ "$b" -gt "$4" ]; then
        beyond="  BEYOND THE LIMIT ($4 MiB)"
        failures=$((failures + 1))
    fi
    # shellcheck disable=SC2059
    printf "$row" "$1" "$a MiB" "$b MiB" "$((b - a)) MiB" "$(awk "BEGIN { printf \"%.2f\", $b / $a }")" "$beyond"
}

finish() { # CHECK: fails when it is set and a row is beyond its limit
    if [ "$failures" != 0 ]; then
        printf '\n%d of the rows with a limit beyond it\n' "$failures"
        [ -z "$1" ] || exit 1
    fi
}
