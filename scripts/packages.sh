# Sourced by the set-up scripts: install Debian packages once, and say plainly what is missing where that cannot be done.
# shellcheck shell=bash

export LC_ALL=C DEBIAN_FRONTEND=noninteractive

say() { printf 'setup: %s\n' "$*" >&2; }

# What cannot be had is a warning, because much of offld works without it; where every tool is required (CI) it is an error.
shortfall() {
    say "$@"
    SHORT=1
}

finish() { # [STAMP]: written only when nothing was missing, so that the next run looks again
    if [ "${SHORT:-0}" = 0 ]; then
        if [ -n "${1:-}" ]; then
            mkdir -p "$(dirname "$1")"
            : > "$1"
        fi
        return
    fi
    [ -z "${1:-}" ] || rm -f "$1"
    if [ "${REQUIRE_TOOLS:-0}" = 1 ]; then
        say 'something is missing, and REQUIRE_TOOLS=1 makes that an error'
        exit 1
    elif [ "${NEEDS_ALL:-0}" = 1 ] && [ "${NO_APT:-0}" = 0 ]; then
        say 'nothing was built: all of this is needed. Once it is there, run this again'
        exit 1
    else
        say 'going on without it: what needs it is skipped or fails with its own message'
    fi
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

available() {
    local candidate
    candidate=$(apt-cache policy "$1" | sed -n 's/^ *Candidate: //p')
    [ -n "$candidate" ] && [ "$candidate" != '(none)' ]
}

# Whether anything is known of what the sources have: before the first `apt-get update` nothing is.
has_lists() { apt-cache policy dpkg | grep -q '://'; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@" # no terminal: fail rather than wait for a password
    fi
}

# Waits for another apt on the machine. --no-remove: the OpenMP packages of two LLVM releases conflict, and replacing
# somebody's installed one is not ours to decide.
apt_install() {
    as_root apt-get install -qq -y --no-remove --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

# Two releases of Debian have LLVM 22 themselves, for those who use their updates. OS_RELEASE: another file than the system's, for tests.
where_llvm_comes_from() {
    local codename debian=''
    # shellcheck source=/dev/null
    codename=$(. "${OS_RELEASE:-/etc/os-release}" && echo "${VERSION_CODENAME:-bookworm}")
    case $codename in
        bookworm) debian='http://deb.debian.org/debian-security bookworm-security main' ;;
        trixie) debian='http://deb.debian.org/debian trixie main' ;;
    esac
    if [ -n "$debian" ]; then
        cat >&2 <<EOF
setup: no configured apt source has LLVM 22. One of Debian's has it, which root adds with this line; then run this again:
    echo 'deb $debian' > /etc/apt/sources.list.d/llvm-22.list
EOF
    else
        cat >&2 <<EOF
setup: no configured apt source has LLVM 22. apt.llvm.org has it, which root adds with these lines; then run this again:
    apt-get install -y wget ca-certificates
    wget -qO /etc/apt/trusted.gpg.d/apt.llvm.org.asc https://apt.llvm.org/llvm-snapshot.gpg.key
    echo 'deb http://apt.llvm.org/$codename/ llvm-toolchain-$codename-22 main' > /etc/apt/sources.list.d/llvm-22.list
EOF
    fi
}

# Says which of the packages no source has, and sorts them out: WANTED has the others.
sort_out() { # PACKAGE...
    local package absent=()
    WANTED=()
    for package; do
        if available "$package"; then WANTED+=("$package"); else absent+=("$package"); fi
    done
    [ "${#absent[@]}" = 0 ] && return
    shortfall "no apt source has: ${absent[*]}"
    case "${absent[*]}" in *-22*) where_llvm_comes_from ;; esac
}

install_packages() { # PACKAGE...
    local missing=() package
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        NO_APT=1
        shortfall "this system has no apt; what these Debian packages hold is needed: $*"
        return
    fi
    for package; do installed "$package" || missing+=("$package"); done
    [ "${#missing[@]}" = 0 ] && return

    if ! as_root true 2>/dev/null; then
        if has_lists; then sort_out "${missing[@]}"; fi
        shortfall 'cannot install packages (not root, and no sudo that lets us). Have somebody run this as root:'
        say "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
        return
    fi
    say "installing ${missing[*]}"
    as_root apt-get update -qq >&2 || say 'apt-get update failed; trying with the package lists that are there'
    sort_out "${missing[@]}"
    [ "${#WANTED[@]}" = 0 ] && return
    if ! apt_install "${WANTED[@]}"; then
        # One package that cannot go in beside what is installed must not keep the others out.
        for package in "${WANTED[@]}"; do
            apt_install "$package" || shortfall "could not install $package (apt-get's own message stands above)"
        done
    fi
}

# The same for packages with services, which are neither started now nor when the machine starts next: what needs them starts its own.
# Debian asks this script before it starts a service. Where there is one already, it is somebody's decision, and stays.
install_servers() { # PACKAGE...
    local policy=/usr/sbin/policy-rc.d ours=0 package service new=()
    for package; do installed "$package" || new+=("$package"); done
    [ "${#new[@]}" = 0 ] && return
    if [ -d "${policy%/*}" ] && [ ! -e "$policy" ] && as_root true 2>/dev/null; then
        printf '#!/bin/sh\n# Put here by a set-up of offld for a moment: services are installed and not started.\nexit 101\n' |
            as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" && ours=1
    fi
    install_packages "${new[@]}"
    [ "$ours" = 0 ] || as_root rm -f "$policy"
    if [ "$ours" = 1 ] && command -v systemctl >/dev/null; then
        for package in "${new[@]}"; do
            # nginx-light's service is nginx's, openssh-server's is ssh. What has no service is no trouble.
            service=${package%-light}
            [ "$package" != openssh-server ] || service=ssh
            as_root systemctl disable -q "$service" 2>/dev/null || true
        done
    fi
}
