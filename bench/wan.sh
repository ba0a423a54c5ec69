#!/bin/bash
# wan.sh [--bin DIR] [--mib N] [--delay-ms D] [--rate MB] [--loss P]...: one file over a long link,
# against a bare TCP stream over the same link.
#
#   --bin        where rialto and examples/ were built [default: target/release]
#   --mib        size of the file [default: 256]
#   --delay-ms   one way; the round trip is twice that [default: 6.25]
#   --rate       what the link carries, MB/s (10^6) [default: 250]
#   --loss       share of packets that are lost, each way; may be given several times [default: 0
#                and 0.001]
#   --runs       of each; the median counts [default: 3]
#
# The link is emulated between two network namespaces (examples/link); the server runs in one, the
# mount in the other. Needs root,
# TUN and ip. Prints a line for each loss: bare stream, cold sequential read, sequential write with
# fsync, MB/s, and ratios to the bare stream.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release mib=256 delay=6.25 rate=250 runs=3 losses=()
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2 ;; --mib) mib=$2 ;; --delay-ms) delay=$2 ;; --rate) rate=$2 ;; \
            --runs) runs=$2 ;; --loss) losses+=("$2") ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift 2
done
[ ${#losses[@]} -gt 0 ] || losses=(0 0.001)
bin=$(cd "$bin" && pwd)
[ "$(id -u)" = 0 ] && [ -w /dev/net/tun ] && command -v ip nsenter > /dev/null ||
    { echo "not run: root, /dev/net/tun, ip and nsenter are needed"; exit 0; }

work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-wan.XXXXXX")
name=wan$$ link='' mounted=no
a() { nsenter --net="/run/netns/$name-a" "$@"; }
b() { nsenter --net="/run/netns/$name-b" "$@"; }
stop() {
    # The mount first: it wants to tell its server.
    [ $mounted = no ] || b "$bin/rialto" umount --dir "$work/client" "$work/mnt" ||
        umount -l "$work/mnt" || true
    mounted=no
    [ ! -d "$work/cell" ] || a "$bin/rialto" down --dir "$work/cell" > /dev/null 2>&1 || true
    [ -z "$link" ] || { exec 9>&-; wait "$link" 2>/dev/null || true; link=''; }
}
trap 'stop; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

start_link() { # loss
    mkfifo "$work/end.$1"
    "$bin/examples/link" --name "$name" --delay-ms "$delay" --rate "$rate" \
        --loss "$1" < "$work/end.$1" > "$work/link.$1" & link=$!
    exec 9> "$work/end.$1"
    for _ in $(seq 100); do [ -s "$work/link.$1" ] && return; sleep 0.05; done
    echo "the link did not come up"; exit 1
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# Megabytes a second of a command over the file's size.
timed() { local start end; start=$(date +%s%N); "$@"; end=$(date +%s%N); awk \
    -v b=$((mib * 1048576)) -v t=$((end - start)) \
    'BEGIN { printf "%.1f\n", b / 1e6 / (t / 1e9) }'; }
bare() {
    a "$bin/examples/stream" send 10.77.0.1:7700 $((mib * 1048576)) & local sender=$!
    b "$bin/examples/stream" receive 10.77.0.1:7700
    wait $sender
}
remount() { # an empty cache
    [ $mounted = no ] || b "$bin/rialto" umount --dir "$work/client" "$work/mnt" > /dev/null
    rm -rf "$work/client"
    mkdir -p "$work/client"
    b "$bin/rialto" mount --daemon --dir "$work/client" 10.77.0.1:7620 "$work/mnt" > /dev/null
    mounted=yes
}
write_file() { dd if=/dev/zero of="$work/mnt/file" bs=1M count="$mib" conv=fsync status=none; }
read_file() { dd if="$work/mnt/file" of=/dev/null bs=1M status=none; }

mkdir -p "$work/mnt"
printf '%-8s %12s %12s %12s %8s %8s\n' loss 'bare MB/s' 'read MB/s' 'write MB/s' read write
for loss in "${losses[@]}"; do
    start_link "$loss"
    a "$bin/rialto" up --no-mount --dir "$work/cell" --listen 10.77.0.1:7620 --trust 10.77.0.0/24 \
        --trust-root > "$work/up.log" 2>&1 || { cat "$work/up.log"; exit 1; }
    : > "$work/bare"; : > "$work/read"; : > "$work/write"
    for _ in $(seq "$runs"); do
        bare >> "$work/bare"
        remount
        timed write_file >> "$work/write"
        remount
        timed read_file >> "$work/read"
        rm "$work/mnt/file"
    done
    paste "$work/bare" "$work/read" "$work/write" > "$work/rounds.$loss"
    awk -v loss="$loss" -v s="$(median < "$work/bare")" -v r="$(median < "$work/read")" \
        -v w="$(median < "$work/write")" \
        'BEGIN { printf "%-8s %12.1f %12.1f %12.1f %8.2f %8.2f\n", loss, s, r, w, r / s, w / s }'
    stop
    rm -rf "$work/cell"
done
