#!/bin/bash
# fresh.sh: the two commands on a Debian 12 that has nothing but make, git and a Rust toolchain.
# Root only.
#
# debootstrap makes the machine below $TMPDIR (default /var/tmp) from the mirror that this one uses;
# a clone of the checkout's HEAD is put in, the toolchain and /dev are shared, and in name spaces of
# its own, which take every mount and daemon with them: `make up`, work in the tree, `make down`,
# then what `make test` installs, and two of the real-work parts on it.
# Prints PASS and FAIL lines; the exit code is 1 if any failed.
set -uo pipefail
PART=fresh
here=$(cd "$(dirname "$0")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests

inside() { # in the new machine, below its root; $1 is where the checkout is
    export DEBIAN_FRONTEND=noninteractive
    cd "$1" || exit 1
    check "make up installs what is missing, builds and mounts" make up
    check "the tree takes work" sh -c \
        'cp -r docs .rialto/mnt/ && sync -f .rialto/mnt && diff -r docs .rialto/mnt/docs'
    check "make up again finds it" make up
    check "doctor finds nothing wrong" target/release/rialto doctor --dir .rialto
    check "make down" make down
    check "what make test needs is installed" scripts/setup.sh test
    check "and it is enough for the commands' own test and for git" tests/real/run.sh --quick \
        --bin target/release cli git
}

if [ "${1:-}" = --inside ]; then
    WORK=/tmp
    . "$2/tests/lib/real.sh"
    inside "$2"
    finish
fi

. "$here/lib/real.sh"
. "$here/lib/fetch.sh"

bootstrap() { # its packages are kept for the next time
    mkdir -p "$CACHE/debs"
    debootstrap --variant=minbase --include=ca-certificates,make,git \
        --cache-dir="$CACHE/debs" bookworm "$root" "$(debian_mirror)" || return
    echo "deb $(debian_mirror) bookworm main" > "$root/etc/apt/sources.list"
    # How this machine reaches its mirror: resolvers, certificates, proxies.
    local file
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        cp -L "$file" "$root$file"; done
    for file in $(grep -lsE 'Acquire::(http|https|Retries|Check)' /etc/apt/apt.conf \
        /etc/apt/apt.conf.d/*); do
        cp "$file" "$root/etc/apt/apt.conf.d/"
    done
}

share() { # what the new machine has of this one: devices and the Rust toolchain
    mkdir -p "$root$HOME/.cargo" "$root$HOME/.rustup" "$root$HOME/.cache/rialto-tests" &&
        mount --rbind /dev "$root/dev" &&
        mount --bind "${CARGO_HOME:-$HOME/.cargo}" "$root$HOME/.cargo" &&
        mount --bind "${RUSTUP_HOME:-$HOME/.rustup}" "$root$HOME/.rustup" &&
        mount --bind "$CACHE" "$root$HOME/.cache/rialto-tests" &&
        mount -t proc proc "$root/proc" &&
        mount -t sysfs sysfs "$root/sys"
}

if [ "${1:-}" = --machine ]; then
    WORK=$2 root=$2/root
    check "a machine with nothing on it" bootstrap || finish
    check "a clone of the checkout" git clone -q "$here/.." "$root/root/rialto" || finish
    check "devices and a Rust toolchain" share || finish
    env -u CARGO_TARGET_DIR -u CARGO_HOME -u RUSTUP_HOME \
        -u XDG_CACHE_HOME PATH="$HOME/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        chroot "$root" bash /root/rialto/tests/fresh.sh --inside /root/rialto
    exit
fi

[ "$(id -u)" = 0 ] || { skip "only root can make a root directory of another system"; exit 0; }
command -v debootstrap > /dev/null ||
    { skip "no debootstrap (apt-get install debootstrap)"; exit 0; }
WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-fresh.XXXXXX")
trap 'rm -rf --one-file-system "$WORK"' EXIT
# Mounts and processes end with these name spaces, whatever is left behind.
unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash "$here/fresh.sh" \
    --machine "$WORK"
