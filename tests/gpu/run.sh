#!/bin/sh
# Runs the programs in this directory on the GPUs of this machine. Each checks its own results. Needs only the driver (NVIDIA), or the
# driver and libamdhip64 (AMD). A program without an image for the GPU must report that and not run.
# usage: run.sh [NAME…]      Exit status: 0, or 1 if a program failed. The last line: 'N passed, N failed, N skipped'
here=$(cd "$(dirname "$0")" && pwd)
cd "$here" || exit 1
# The directory of devices; a test of this script replaces it.
dev=${GPU_DEV:-/dev}
passed=0 failed=0 skipped=0

# The architectures of AMD GPUs, from the Linux kernel: 90402 is gfx942. For NVIDIA GPUs, the program prints the architecture.
amd_devices() {
    cat /sys/class/kfd/kfd/topology/nodes/*/properties 2>/dev/null | while read -r key value; do
        [ "$key" = gfx_target_version ] && [ "$value" != 0 ] &&
            printf 'gfx%d%x%x\n' $((value / 10000)) $((value / 100 % 100)) $((value % 100))
    done
}

# Whether DEVICE can load an image of ARCH…. NVIDIA machine code needs the same major and no later minor version, PTX no later version.
is_for() { # DEVICE ARCH…
    device=$1
    shift
    for arch; do
        case $arch in
            ptx:sm_*) [ "${arch#ptx:sm_}" -le "${device#sm_}" ] && return 0 ;;
            sm_*) number=${arch#sm_} own=${device#sm_}
                [ "${number%?}" = "${own%?}" ] && [ "$number" -le "$own" ] && return 0 ;;
            *) [ "$arch" = "$device" ] && return 0 ;;
        esac
    done
    return 1
}

skip() { echo "$1: skipped: $2"; skipped=$((skipped + 1)); }
fail() { echo "$1: FAILED: $2"; failed=$((failed + 1)); }

# Prints why no program of that kind can run here, or nothing.
lacking() { # KIND
    case $1 in
        cuda | openmp-nvptx) [ -e "$dev/nvidiactl" ] || [ -e "$dev/nvidia0" ] || [ -e "$dev/dxg" ] || echo 'no NVIDIA GPU (no /dev/nvidia0)' ;;
        *) [ -e "$dev/kfd" ] || echo 'no AMD GPU (no /dev/kfd)' ;;
    esac
}

run() { # NAME KIND ARCH…
    name=$1 kind=$2
    shift 2
    why=$(lacking "$kind")
    if [ -n "$why" ]; then skip "$name" "$why"; return; fi
    case $kind in openmp-*) export OMP_TARGET_OFFLOAD=MANDATORY ;; esac
    # Otherwise the driver would load the machine code next to the PTX.
    [ "$name" != cuda-ptx ] || export CUDA_FORCE_PTX_JIT=1
    output=$("./$name" 2>&1)
    status=$?
    unset CUDA_FORCE_PTX_JIT
    device=$(printf '%s\n' "$output" | sed -n 's/^device: //p')
    [ "$kind" != hip ] || device=$(amd_devices | head -n 1)
    output=$(printf '%s' "$output" | tail -n 1)
    expected=0
    [ -z "$device" ] || is_for "$device" "$@" || expected=78
    if [ "$status" = "$expected" ]; then
        echo "$name: passed${device:+ on $device}: $output"
        passed=$((passed + 1))
    else
        fail "$name" "status $status${device:+ on $device}, expected $expected: $output"
    fi
}

while read -r name kind archs; do
    case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
    # shellcheck disable=SC2086 # several architectures
    run "$name" "$kind" $archs
done < programs.txt
while IFS=: read -r name why; do
    case " ${*:-$name} " in *" $name "*) skip "$name" "not built:$why" ;; esac
done < not-built.txt
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
