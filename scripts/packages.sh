# Sourced by the set-up scripts: installs Debian packages once, and reports missing ones that cannot be installed.
# shellcheck shell=bash

export LC_ALL=C DEBIAN_FRONTEND=noninteractive

say() { printf 'setup: %s\n' "$*" >&2; }

# A missing package is a warning, because much of offld works without it. If every tool is required (CI), it is an error.
shortfall() {
    say "$@"
    SHORT=1
}

finish() { # [STAMP]: written only if nothing was missing, so that the next run checks again
    if [ "${SHORT:-0}" = 0 ]; then
        if [ -n "${1:-}" ]; then
            mkdir -p "$(dirname "$1")"
            : > "$1"
        fi
        return
    fi
    [ -z "${1:-}" ] || rm -f "$1"
    if [ "${REQUIRE_TOOLS:-0}" = 1 ]; then
        say 'packages or tools are missing (see above), which REQUIRE_TOOLS=1 makes an error'
        exit 1
    elif [ "${NEEDS_ALL:-0}" = 1 ] && [ "${NO_APT:-0}" = 0 ]; then
        say 'nothing was built, because all of these are required. Install them, then run this again'
        exit 1
    else
        say 'continuing without them: steps that need them are skipped, or fail with their own messages'
    fi
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

available() {
    local candidate
    candidate=$(apt-cache policy "$1" | sed -n 's/^ *Candidate: //p')
    [ -n "$candidate" ] && [ "$candidate" != '(none)' ]
}

# Whether apt has package lists. It has none before the first `apt-get update`.
has_lists() { apt-cache policy dpkg | grep -q '://'; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@" # without a terminal, fail instead of waiting for a password
    fi
}

# Waits for other apt processes on the machine. --no-remove: the OpenMP packages of two LLVM releases conflict, and a set-up script
# must not replace the user's.
apt_install() {
    as_root apt-get install -qq -y --no-remove --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

# Prints an apt source for LLVM 22. Two Debian releases have it among their updates. OS_RELEASE: replaces the system's file, for tests.
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
setup: no configured apt source has LLVM 22. Add this Debian source as root, then run this again:
    echo 'deb $debian' > /etc/apt/sources.list.d/llvm-22.list
EOF
    else
        cat >&2 <<EOF
setup: no configured apt source has LLVM 22. Add apt.llvm.org as root, then run this again:
    apt-get install -y wget ca-certificates
    wget -qO /etc/apt/trusted.gpg.d/apt.llvm.org.asc https://apt.llvm.org/llvm-snapshot.gpg.key
    echo 'deb http://apt.llvm.org/$codename/ llvm-toolchain-$codename-22 main' > /etc/apt/sources.list.d/llvm-22.list
EOF
    fi
}

# Reports the packages that no source has, and puts the others into WANTED.
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
        shortfall "this system has no apt: install the equivalents of these Debian packages: $*"
        return
    fi
    for package; do installed "$package" || missing+=("$package"); done
    [ "${#missing[@]}" = 0 ] && return

    if ! as_root true 2>/dev/null; then
        if has_lists; then sort_out "${missing[@]}"; fi
        shortfall 'cannot install packages without root or sudo. Run this as root:'
        say "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
        return
    fi
    say "installing ${missing[*]}"
    as_root apt-get update -qq >&2 || say 'apt-get update failed; trying with the existing package lists'
    sort_out "${missing[@]}"
    [ "${#WANTED[@]}" = 0 ] && return
    if ! apt_install "${WANTED[@]}"; then
        # One package that conflicts with an installed one must not prevent the others.
        for package in "${WANTED[@]}"; do
            apt_install "$package" || shortfall "could not install $package (see apt-get's message above)"
        done
    fi
}

# Installs packages with services, which must not start now or at boot, because tests start their own servers.
# Debian runs the script policy-rc.d before it starts a service. An existing policy-rc.d is the user's and stays.
install_servers() { # PACKAGE...
    local policy=/usr/sbin/policy-rc.d ours=0 package service new=()
    for package; do installed "$package" || new+=("$package"); done
    [ "${#new[@]}" = 0 ] && return
    if [ -d "${policy%/*}" ] && [ ! -e "$policy" ] && as_root true 2>/dev/null; then
        printf '#!/bin/sh\n# Temporary, from the set-up of offld: services are installed but not started.\nexit 101\n' |
            as_root tee "$policy" >/dev/null && as_root chmod 755 "$policy" && ours=1
    fi
    install_packages "${new[@]}"
    [ "$ours" = 0 ] || as_root rm -f "$policy"
    if [ "$ours" = 1 ] && command -v systemctl >/dev/null; then
        for package in "${new[@]}"; do
            # The service of nginx-light is nginx, that of openssh-server is ssh. Packages without a service make disable fail, which is harmless.
            service=${package%-light}
            [ "$package" != openssh-server ] || service=ssh
            as_root systemctl disable -q "$service" 2>/dev/null || true
        done
    fi
}
