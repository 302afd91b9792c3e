# Sourced by the scripts here: creates bare roots of Debian releases in target/roots, and runs commands in them. Needs root (chroot, mount).
# shellcheck shell=bash
# shellcheck disable=SC2154  # TOP, say and fail come from packaging/common.sh

ROOTS=$TOP/target/roots

# Runs a command in a root, without this machine's environment. Its mounts are private and end with the command.
inside() { # ROOT USER COMMAND…
    local root=$1 user=$2 home=/home/user
    shift 2
    [ "$user" = root ] && home=/root
    # shellcheck disable=SC2016  # the inner shell's variables
    unshare --mount --pid --fork --kill-child sh -eu -c '
        root=$1 user=$2 home=$3
        shift 3
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sysfs "$root/sys"
        mount -t tmpfs tmpfs "$root/dev/shm" # shared memory of the OpenMP runtime
        mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
        ln -sfn pts/ptmx "$root/dev/ptmx"
        exec chroot --userspec="$user" "$root" env -i HOME="$home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "$@"' sh "$root" "$user" "$home" "$@"
}

# Creates a bare root. The directory is renamed into place when it is complete.
bare_root() { # RELEASE
    [ -d "$ROOTS/$1" ] && return
    say "making a bare root of $1"
    rm -rf "$ROOTS/$1.new"
    mkdir -p "$ROOTS"
    debootstrap --variant=minbase --include=python3-venv "$1" "$ROOTS/$1.new" http://deb.debian.org/debian > "$ROOTS/$1.log" 2>&1 ||
        { tail -n 20 "$ROOTS/$1.log" >&2; fail "debootstrap of $1 failed"; }
    inside "$ROOTS/$1.new" root useradd --create-home --uid 1000 user
    inside "$ROOTS/$1.new" root rm -rf /var/cache/apt/archives
    mv "$ROOTS/$1.new" "$ROOTS/$1"
}

# Configures apt in a root for Debian's packages. Debian 12 has LLVM 22 among its security updates.
reach_debian() { # ROOT RELEASE
    if [ "$2" = bookworm ]; then
        echo 'deb http://deb.debian.org/debian-security bookworm-security main' > "$1/etc/apt/sources.list.d/security.list"
    fi
    cp /etc/resolv.conf "$1/etc/resolv.conf"
}
