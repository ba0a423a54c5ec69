#!/bin/bash
# compress.sh [--bin DIR] [--runs N] [CORPUS]: what compress = "zstd" saves, and what it costs
# readers.
#
#   --bin    where rialto and examples/ were built [default: target/release]
#   --runs   readings of each kind; the median counts [default: 5]
#   CORPUS   a directory of source and text [default: /usr/include]
#
# Two cells, one with it, get the corpus as a volume; its snapshot is what stays. Prints what the
# corpus takes on each partition, and how fast a client over TCP reads all of it for the first time
# (its cache empty) and again. Needs root and /dev/fuse.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release runs=5 corpus=/usr/include
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --runs) runs=$2; shift ;;
        -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
        *) corpus=$1 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || { echo "not run: root and /dev/fuse are needed"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-compress.XXXXXX")
export RIALTO_RUN=$work/run
rialto() { "$bin/rialto" "$@"; }
stop() {
    for kind in plain zstd; do
        rialto umount --lazy --dir "$work/client-$kind" "$work/mnt-$kind" > /dev/null 2>&1 || true
        rialto down --dir "$work/$kind" > /dev/null 2>&1 || true
    done
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM
# Without the engine's log, which takes room in advance and is empty after a stop.
taken() { sync; du -s --block-size=1 --exclude='*.log' "$1" | cut -f 1; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
reading() { local start; start=$(date +%s%N); tar -cf - -C "$1" . |
    cat > /dev/null; echo $(($(date +%s%N) - start)); }
address() { sed -n 's/^listen = "\(.*\)"/\1/p' "$work/$1/cell.toml"; }

mkdir "$work/input"
cp -rL "$corpus/." "$work/input" 2> /dev/null || true
bytes=$(find "$work/input" -type f -printf '%s\n' | awk '{ all += $1 } END { print all }')
echo "corpus: $(find "$work/input" -type f | wc -l) files, $((bytes >> 20)) MiB"
for kind in plain zstd; do
    rialto up --dir "$work/$kind" --listen 127.0.0.1:0 --trust 127.0.0.0/8 --trust-root --no-mount \
        > /dev/null
    # What the log takes in advance is no part of it: measured while no server runs.
    rialto down --dir "$work/$kind" > /dev/null
    before=$(taken "$work/$kind/vicep")
    [ $kind = plain ] || sed -i '1i compress = "zstd"' "$work/$kind/cell.toml"
    rialto server --daemon --dir "$work/$kind" > /dev/null
    rialto vos create corpus --dir "$work/$kind" > /dev/null
    mkdir "$work/mnt-$kind"
    rialto mount --daemon --dir "$work/client-$kind" \
        --volume corpus "unix:$work/$kind/server.sock" "$work/mnt-$kind" > /dev/null
    cp -r "$work/input/." "$work/mnt-$kind"
    rialto vos snapshot create corpus kept --dir "$work/$kind" > /dev/null
    rialto umount --dir "$work/client-$kind" "$work/mnt-$kind" > /dev/null
    rialto vos remove corpus --dir "$work/$kind" > /dev/null
    # What waits for the packer is done when nothing changes any more.
    last=0 now=1 quiet=0
    while [ $quiet -lt 3 ]; do
        sleep 2; now=$(taken "$work/$kind/vicep/bodies"); [ "$now" = "$last" ] &&
            quiet=$((quiet + 1)) || quiet=0; last=$now; done
    rialto down --dir "$work/$kind" > /dev/null
    after=$(taken "$work/$kind/vicep")
    awk -v k=$kind -v b="$bytes" -v t=$((after - before)) \
        'BEGIN { printf "%s: %d MiB on the partition, ", k, t / 1048576
            printf "%.2f of the corpus, ratio %.2f\n", t / b, b / t }'
    rialto server --daemon --dir "$work/$kind" > /dev/null
done
# Alternating, so that both see the same machine.
for run in $(seq "$runs"); do
    for kind in plain zstd; do
        rialto mount --daemon --dir "$work/client-$kind" \
            --volume corpus.snapshot.kept "$(address $kind)" "$work/mnt-$kind" > /dev/null
        reading "$work/mnt-$kind" >> "$work/cold-$kind"
        reading "$work/mnt-$kind" >> "$work/warm-$kind"
        [ "$run" -gt 1 ] || diff -r "$work/input" "$work/mnt-$kind" > /dev/null ||
            { echo "$kind is not the corpus"; exit 1; }
        rialto umount --dir "$work/client-$kind" "$work/mnt-$kind" > /dev/null
        rm -rf "$work/client-$kind"
    done
done
for what in cold warm; do
    awk -v w=$what -v b="$bytes" -v p="$(median < "$work/$what-plain")" \
        -v z="$(median < "$work/$what-zstd")" \
        'BEGIN { printf "%s reading of all: plain %.0f MB/s, ", w, b / p * 1e3
            printf "zstd %.0f MB/s, %.2f of plain\n", b / z * 1e3, p / z }'
done
