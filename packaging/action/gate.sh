#!/usr/bin/env bash
# The step of action.yml: runs `offld gate`, and adds its report to the job summary. POLICY is the policy. FILES and BASELINE have a file or a
# pattern on each line. An offld on PATH is used; otherwise this copy is built, without LLVM.
set -euo pipefail
shopt -s nullglob globstar

fail() {
    printf '::error::%s\n' "$1"
    exit 2
}

# Appends the files that the patterns in TEXT match to the array NAME.
add_files() { # NAME TEXT
    local -n list=$1
    local pattern found
    while IFS= read -r pattern; do
        [ -n "$pattern" ] || continue
        # A name that exists may contain characters of patterns.
        if [ -e "$pattern" ]; then
            found=("$pattern")
        else
            # shellcheck disable=SC2086 # the pattern is expanded here, and not split into words
            mapfile -t found < <(IFS=; printf '%s\n' $pattern)
        fi
        [ -n "${found[0]-}" ] || fail "no file matches $pattern"
        list+=("${found[@]}")
    done <<< "$2"
}

offld=$(command -v offld || true)
if [ -z "$offld" ]; then
    target=${RUNNER_TEMP:?}/offld
    cargo build --release --locked --no-default-features --bin offld --manifest-path "$GITHUB_ACTION_PATH/Cargo.toml" --target-dir "$target"
    offld=$target/release/offld
fi

files=() old=() arguments=()
add_files files "${FILES:?}"
add_files old "${BASELINE-}"
for one in "${old[@]}"; do
    arguments+=("--baseline=$one")
done

status=0
report=$("$offld" gate --markdown "${arguments[@]}" "${POLICY:?}" "${files[@]}") || status=$?
printf '%s\n' "$report" | tee -a "${GITHUB_STEP_SUMMARY:?}"
[ "$status" -ne 3 ] || printf '::error::files violate %s\n' "$POLICY"
exit "$status"
