# Common to the peers' scripts; sourced, with the arguments VERB DIR. A script sets `packages` and
# `programs`, defines serve, attach and perhaps purge, and calls `peer "$@"` last.
#
# serve    start the servers; everything below $dir; each server through `background server NAME
# PROGRAM...`
#   attach   mount on $mount, through `background client NAME PROGRAM...`
#   purge    take away what lies outside $dir
set -euo pipefail
export LC_ALL=C
name=$(basename "$0" .sh)
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "$name: $*" >&2; exit 1; }

# background ROLE NAME PROGRAM...: a process of its own session, its words in a log, its number
# remembered.
background() {
    local role=$1 log=$dir/log/$2.log
    shift 2
    setsid "$@" >>"$log" 2>&1 </dev/null &
    echo "$role $!" >>"$dir/pids"
}

# remember ROLE PID...: processes that were started by others.
remember() {
    local role=$1 pid
    shift
    for pid in "$@"; do echo "$role $pid" >>"$dir/pids"; done
}

# patiently SECONDS COMMAND...: until it succeeds.
patiently() {
    local left=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -gt 0 ] || { tail -qn 2 "$dir"/log/* >&2 || true; fail "not in time: $*"; }
        sleep 0.1
    done
}

# Many servers run as users of their own, below no private home.
reachable() {
    runuser -u nobody -- test -x "$dir" ||
        fail "only root gets to $dir; 'rialto bench --dir' with one below /var/tmp, say"
}

mounted() { grep -q " $mount fuse" /proc/self/mounts; }
answers() { mounted && timeout 5 ls "$mount"; }
alive() { [ -e "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# end ROLE: asks the processes of that role, latest first, and insists after ten seconds.
end() {
    local role pid left
    [ -e "$dir/pids" ] || return 0
    mapfile -t pids < <(awk -v role="$1" '$1 == role { print $2 }' "$dir/pids" | tac)
    for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; done
    for pid in ${pids[@]+"${pids[@]}"}; do
        left=100
        while alive "$pid" && [ $left -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
        ! alive "$pid" || kill -9 "$pid" 2>/dev/null || true
    done
    awk -v role="$1" '$1 != role' "$dir/pids" >"$dir/pids.new"
    mv "$dir/pids.new" "$dir/pids"
}

detach() {
    ! mounted || timeout 30 umount "$mount" 2>/dev/null || umount -l "$mount"
    # A client that was unmounted ends by itself; others are asked.
    local pid left=50
    for pid in $(awk '$1 == "client" { print $2 }' "$dir/pids" 2>/dev/null); do
        while alive "$pid" && [ $left -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    done
    end client
    end starter
}

# A network of its own with one address on its loopback, so that servers meet nobody else.
network() {
    [ -e "/run/netns/$1" ] || { ip netns add "$1" && ip -n "$1" link set lo up &&
        ip -n "$1" addr add "$2/32" dev lo; }
}
# within NETWORK PROGRAM...: nsenter keeps the mounts visible that are made inside, `ip netns exec`
# does not.
within() {
    local network=$1
    shift
    nsenter --net="/run/netns/$network" "$@"
}

check() {
    local program missing=()
    for program in "${programs[@]}"; do command -v "$program" >/dev/null ||
        missing+=("$program"); done
    [ ${#missing[@]} -eq 0 ] ||
        fail "${missing[*]} not installed: 'bench/peers/$name.sh install' installs ${packages[*]}"
    [ "$(id -u)" = 0 ] || fail "this needs root"
}

install_packages() {
    # Debian starts a service when it is installed, unless this says no.
    local policy=/usr/sbin/policy-rc.d ours=no
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; ours=yes; }
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" ||
        {
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
            --no-install-recommends "${packages[@]}"
    }
    [ $ours = no ] || rm -f $policy
}

purge() { :; }

peer() {
    local verb=${1:-}
    case $verb in
        install) install_packages; return ;;
        check) check; return ;;
    esac
    [ $# -eq 2 ] ||
        fail "usage: $name.sh install|check, or $name.sh start|mount|umount|stop|pids|purge DIR"
    dir=$2 mount=$2/mnt
    case $verb in
        start)
            check
            mkdir -p "$dir/log" "$mount"
            reachable
            touch "$dir/pids"
            # Whoever called reads what we say; only the last line is for it.
            { serve && attach; } >&2
            echo "$mount" ;;
        mount) attach >&2 ;;
        umount) detach >&2 ;;
        stop) detach >&2; end server ;;
        pids) awk '{ print $1, $2 }' "$dir/pids" ;;
        purge) purge ;;
        *) fail "no verb '$verb'" ;;
    esac
}
