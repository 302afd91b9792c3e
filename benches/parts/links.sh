# shellcheck shell=bash
# Rows of links without device code, and of generated programs that offload to the CPU.

# Links without device code: both wrappers must find out that there is none, and then run the host linker.
group_plain() {
    echo 'int main() { return 0; }' > plain.cpp
    "$llvm/bin/clang++" -c plain.cpp -o plain.o
    local i many=() line floor
    mkdir data
    for i in $(seq 300); do
        printf '.globl datum%d\n.data\ndatum%d: .long 1\n' "$i" "$i" | as -o "data/$i.o" -
        many+=("data/$i.o")
    done
    line=$(wrapper_argv plain.o -o OUT) floor="$lld $(argv -fuse-ld=lld plain.o -o OUT)"
    plain_row() { # KEY TITLE MORE-INPUTS
        row "$1" "no device code: $2" over_floor=1 floor_is='ld.lld alone' floor="$(line_for floor "$floor") $3" \
            theirs="$theirs $(line_for theirs "$line") $3" ours="$ours $(line_for ours "$line") $3" "${@:4}"
    }
    # Differences of milliseconds need many rounds.
    plain_row plain 'one object' '' runs="$PAIRED_RUNS"
    plain_row plain-many '301 objects' "${many[*]}" runs="$PAIRED_RUNS"
    local archives=("$llvm"/lib/libLLVM*.a)
    plain_row plain-libraries "$(du -cmL "${archives[@]}" | tail -n 1 | cut -f 1) MiB of archives" "${archives[*]}" runs="$LARGE_RUNS"
    export OFFLD_LINKER=$lld
    plain_row plain-ld 'one object, by ld.offld' '' ours="$links/ld.offld $(argv -fuse-ld=lld plain.o -o out.ours)" runs="$PAIRED_RUNS"
    unset OFFLD_LINKER
}

group_zaxpy() {
    local source objects=() line
    for source in "$benches"/../examples/zaxpy/*.cpp; do
        objects+=("$(basename "$source").o")
        "$llvm/bin/clang++" -O2 "${offload[@]}" -c "$source" -o "${objects[-1]}"
    done
    line=$(argv -fuse-ld=lld "${offload[@]}" "${objects[@]}" -o OUT)
    on_disk_and_in_memory zaxpy_rows "$line"
    zaxpy_by zaxpy-bfd 'zaxpy, warm, with ld.bfd' -fuse-ld=bfd
    local wild=$benches/../target/wild/bin/ld.wild
    if [ -x "$wild" ]; then
        zaxpy_by zaxpy-wild 'zaxpy, warm, with wild' --ld-path="$(realpath -s "$wild")"
    else
        leave_out 'wild not found (make setup)' 'zaxpy, warm, with wild'
    fi
}

zaxpy_by() { # KEY TITLE OPTION; OPTION selects the host linker of both sides
    local line
    new_cache "$1"
    line=$(argv "$3" "${offload[@]}" "${objects[@]}" -o OUT)
    row "$1" "$2" theirs="$theirs $(line_for theirs "$line")" ours="$ours $(line_for ours "$line")" after=agree
}

zaxpy_rows() { # SUFFIX TITLE LINE
    program_row "zaxpy-first$1" "zaxpy, first link with an empty cache$2" "$3" first
    other_program "${offload[@]}"
    program_row "zaxpy-cold$1" "zaxpy, cold$2" "$3" cold
    new_cache "zaxpy$1"
    program_row "zaxpy-warm$1" "zaxpy, warm$2" "$3"
}

# Rows with temporary files on the disk of the working directory, and again in memory, where LLVM's many files cost least:
# FUNCTION ARGUMENTS..., which is called with a suffix of the rows' keys, a suffix of their titles, and ARGUMENTS.
on_disk_and_in_memory() {
    "$1" '' '' "${@:2}"
    [ -d /dev/shm ] || { say '/dev/shm not found: skipping the rows with temporary files in memory'; return; }
    local disk=$TMPDIR
    TMPDIR=$(mktemp -d /dev/shm/offld-bench.XXXXXX)
    in_memory=$TMPDIR
    "$1" -shm ', temporary files in memory' "${@:2}"
    rm -rf "$TMPDIR"
    TMPDIR=$disk
}

# The row of a link whose program can run: KEY TITLE LINE [BEFORE [NAME=VALUE...]]
program_row() {
    local floor
    floor=$(host_line "$ours $(line_for floor "$3")") || exit 1
    row "$1" "$2" floor_is='ld.lld alone' floor="$floor" theirs="$theirs $(line_for theirs "$3")" ours="$ours $(line_for ours "$3")" \
        before="${4:-}" after=agree "${@:5}"
}

# ---- generated translation units ----------------------------------------------------------------------------------------------

# A translation unit with a kernel, a device variable and a device function, which calls device code of another unit. HOST changes only
# host code, DEVICE device code.
unit() { # N
    cat <<EOF
#ifndef HOST
#define HOST 1
#endif
#ifndef DEVICE
#define DEVICE 1
#endif
#pragma omp begin declare target
int mix(int a, int b);
int table$1[4] = {1, 2, 3, $1};
int twist$1(int a) {
  for (int i = 0; i < 4; ++i)
    a = a * 31 + table$1[i] * DEVICE;
  return a;
}
#pragma omp end declare target
int run$1(int *data, int count) {
  int total = HOST;
#pragma omp target teams distribute parallel for map(tofrom : data[0 : count]) map(tofrom : total) reduction(+ : total)
  for (int i = 0; i < count; ++i) {
    data[i] = mix(twist$1(data[i]), $1);
    total += data[i];
  }
  return total;
}
EOF
}

compile_unit() { echo "'$llvm/bin/clang++' -O2 ${offload[*]} $1 -c '$2' -o '$3'"; }

# Compiles DIR/main.cpp, whose main calls the units CALLED, and DIR/mix.cpp, whose device function all units call.
generate_main() { # DIR CALLED...
    local folder=$1 n
    shift
    {
        echo '#include <cstdio>'
        printf 'int run%d(int *, int);\n' "$@"
        echo 'int main() { int data[64] = {}; unsigned total = 0;'
        printf 'total = total * 31 + run%d(data, 64);\n' "$@"
        # shellcheck disable=SC2028 # \n for C
        echo 'std::printf("%u\n", total); }'
    } > "$folder/main.cpp"
    printf '#pragma omp begin declare target\nint mix(int a, int b) { return a * 17 + b; }\n#pragma omp end declare target\n' > "$folder/mix.cpp"
    for n in main mix; do compile_unit '' "$folder/$n.cpp" "$folder/$n.o"; done | in_parallel
}

# Compiles the translation units FROM to TO - 1 into DIR, unless they exist.
generate_units() { # DIR FROM TO
    local n
    mkdir -p "$1"
    say "compiling translation units $2 to $(($3 - 1))"
    for ((n = $2; n < $3; n++)); do
        [ -e "$1/$n.o" ] && continue
        unit "$n" > "$1/$n.cpp"
        compile_unit '' "$1/$n.cpp" "$1/$n.o"
    done | in_parallel
}

# Compiles variants of translation units, one of which each round uses: two with different host code, in turns, and one with new device code
# per round.
generate_variants() { # DIR
    local n
    for n in 0 1; do compile_unit "-DHOST=$((n + 2))" "$1/7.cpp" "$1/host.$n"; done | in_parallel
    for ((n = 0; n <= RUNS + 1; n++)); do compile_unit "-DDEVICE=$((n + 2))" "$1/8.cpp" "$1/device.$n"; done | in_parallel
    for n in 0 1; do "$llvm/bin/llvm-objcopy" --dump-section ".llvm.offloading=$1/section.$n" "$1/host.$n" "$1/copy.o"; done
    cmp -s "$1/section.0" "$1/section.1" || fail "the two host code variants of $1/7.cpp have different device code"
    ! cmp -s "$1/host.0" "$1/host.1" || fail "the two host code variants of $1/7.cpp are equal"
}

# Values of `before` in rows: replace an object by a variant, and update the archive if there is one.
swap() { # OBJECT VARIANT
    cp "$2" "$1"
    [ -z "$units_archive" ] || "$llvm/bin/llvm-ar" rcs "$units_archive" "$1"
}
host_change() { swap "$units_folder/7.o" "$units_folder/host.$(($2 % 2))"; }
device_change() { swap "$units_folder/8.o" "$units_folder/device.$2"; }

group_many() {
    local count=${UNITS:-300} objects
    units_folder=many units_archive=''
    mapfile -t objects < <(seq -f 'many/%g.o' 0 $((count - 1)))
    generate_units many 0 "$count"
    generate_variants many
    # shellcheck disable=SC2046 # numbers
    generate_main many $(seq 0 $((count - 1)))
    on_disk_and_in_memory many_rows many "$count objects" many/mix.o "${objects[@]}"
    other_program "${offload[@]}"
    names_rows many-names "$count objects" "$(argv -fuse-ld=lld "${offload[@]}" many/main.o many/mix.o "${objects[@]}" -o OUT)" after=agree runs="$PAIRED_RUNS"
    units_archive=many/libunits.a
    "$llvm/bin/llvm-ar" rcs many/libunits.a many/mix.o "${objects[@]}"
    many_rows '' '' many-archive "an archive of $count" many/libunits.a
}

many_rows() { # SUFFIX MORE-TITLE KEY TITLE INPUTS...
    local suffix=$1 more=$2 key=$3 title=$4 line
    line=$(argv -fuse-ld=lld "${offload[@]}" many/main.o "${@:5}" -o OUT)
    program_row "$key-first$suffix" "$title, first link with an empty cache$more" "$line" first
    other_program "${offload[@]}"
    program_row "$key-cold$suffix" "$title, cold$more" "$line" cold
    new_cache "$key$suffix"
    program_row "$key-warm$suffix" "$title, warm$more" "$line"
    [ -z "$suffix" ] || return 0
    program_row "$key-host" "$title, warm, one changed on the host" "$line" host_change
    program_row "$key-device" "$title, warm, one changed on the device" "$line" device_change
}

# The cost of stable names: both sides are offld, and the other one keeps the names of clang, which is the floor as well.
names_rows() { # KEY TITLE LINE [NAME=VALUE...]
    local theirs_off floor_off
    theirs_off="$ours $(line_for theirs "$3") --wrapper-stable-names=off" floor_off="$ours $(line_for floor "$3") --wrapper-stable-names=off"
    names_row() { # KEY TITLE LINE [NAME=VALUE...]
        row "$1" "$2, compared with the names of clang" floor_is='offld with the names of clang' floor="$floor_off" theirs="$theirs_off" \
            ours="$ours $(line_for ours "$3")" paired=1 "${@:4}"
    }
    names_row "$1-cold" "$2, cold" "$3" before=cold_for_both "${@:4}"
    new_cache "$1"
    names_row "$1-warm" "$2, warm" "$3" "${@:4}" runs="$PAIRED_RUNS"
}

# Links that need only some members of an archive: the wrappers read the others, but do not link them.
group_members() {
    local count=${MEMBERS:-1000} called objects line
    units_folder=many
    generate_units many 0 "$count"
    mapfile -t called < <(seq 5 $((count / 10)) "$count" | head -n 10)
    mkdir members
    generate_main members "${called[@]}"
    mapfile -t objects < <(seq -f 'many/%g.o' 0 $((count - 1)))
    "$llvm/bin/llvm-ar" rcs members/libunits.a members/mix.o "${objects[@]}"
    line=$(argv -fuse-ld=lld "${offload[@]}" members/main.o members/libunits.a -o OUT)
    other_program "${offload[@]}"
    program_row members-cold "${#called[@]} members of an archive of $count, cold" "$line" cold
    new_cache members
    program_row members-warm "${#called[@]} members of an archive of $count, warm" "$line"
}
