#!/usr/bin/env bash
# Runs the README's commands one after the other, in one clone of HEAD in a bare root of Debian. Root has the clone in its home directory. A
# user with sudo has it in a home directory that is closed to others, below a directory whose name has a space, and a umask of 077. Needs root
# and Rust. Each pair needs 20 GB of disk, and takes some 50 minutes on two cores.
# usage: clone.sh [RELEASE:USER…]      (default: bookworm:root bookworm:user trixie:root trixie:user)
# COMMANDS: the make targets, in order (default: demo test check test)
set -eu
# shellcheck source-path=SCRIPTDIR source=../../packaging/common.sh
. "$(dirname "$0")/../../packaging/common.sh"
# shellcheck source-path=SCRIPTDIR source=roots.sh
. "$TOP/tests/packages/roots.sh"
say() { printf 'clone: %s\n' "$*" >&2; }

[ "$(id -u)" = 0 ] || fail 'creating bare roots of Debian needs root'
certificates=/etc/ssl/certs/ca-certificates.crt
rust=$(rustc --print sysroot)
# Crates of this machine's cargo cache are copied, so that they are not downloaded again. Everything else comes from the registries.
cargo=${CARGO_HOME:-$HOME/.cargo}

# The directory of USER's clone.
clone_of() { # USER
    if [ "$1" = root ]; then echo /root/offld; else echo '/home/user/my clones/offld'; fi
}

# A bare root with the prerequisites of the README: git, make, Rust, and sudo for an ordinary user.
prepared() { # RELEASE USER ROOT
    local release=$1 user=$2 root=$3 home=/root tool
    bare_root "$release"
    rm -rf "${root:?}"
    cp -a "$ROOTS/$release" "$root"
    reach_debian "$root" "$release"
    inside "$root" root sh -euc 'apt-get update -qq && apt-get install -qq -y --no-install-recommends git make sudo ca-certificates' \
        > "$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; fail "cannot install git, make and sudo into a root of $release (see above)"; }
    # The CA certificates of this machine.
    cp "$certificates" "$root$certificates"
    cp -a "$rust" "$root/opt/rust"
    for tool in "$rust"/bin/*; do ln -s "/opt/rust/bin/${tool##*/}" "$root/usr/local/bin/"; done
    if [ "$user" != root ]; then
        home=/home/user
        echo 'user ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/user"
    fi
    chmod 700 "$root$home"
    git clone -q "$TOP" "$root$(clone_of "$user")"
    mkdir -p "$root$home/.cargo"
    [ ! -d "$cargo/registry" ] || cp -a "$cargo/registry" "$root$home/.cargo/"
    inside "$root" root chown -R "$user:" "$home"
}

if [ $# = 0 ]; then set -- bookworm:root bookworm:user trixie:root trixie:user; fi
failed=0
for pair; do
    release=${pair%:*} user=${pair#*:} root=$ROOTS/clone-${pair%:*}-${pair#*:} started=$SECONDS
    if [ "$user" = root ]; then umask=022; else umask=077; fi
    prepared "$release" "$user" "$root"
    for command in ${COMMANDS:-demo test check test}; do
        say "$pair: make $command"
        # shellcheck disable=SC2016  # the inner shell's variables
        if ! inside "$root" "$user" sh -euc 'cd "$3" && umask "$2" && exec make "$1"' sh "$command" "$umask" "$(clone_of "$user")" >> "$root.log" 2>&1; then
            grep -E '^(test .*FAILED|error|make.*Error)' "$root.log" >&2 || tail -n 30 "$root.log" >&2
            say "$pair: make $command failed (all output: $root.log; the root stays in $root)"
            failed=1
            continue 2
        fi
    done
    rm -rf "${root:?}"
    say "$pair: passed ($((SECONDS - started)) s; all output: $root.log)"
done
exit "$failed"
