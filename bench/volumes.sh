#!/bin/bash
# volumes.sh [--bin DIR] [--volumes N] [--dir DIR] [--keep]: a server with many volumes on three
# partitions.
#
#   --bin       where rialto and examples/ were built [default: target/release]
#   --volumes   on each of the three partitions [default: 500000]
#   --dir       where the cell is made; what a run with --keep left there is used again [default:
#               a new directory in $TMPDIR]
#   --keep      leave it there
#
# Prints how long a start takes until the first reply, how long `vos listvol` takes for all volumes,
# the memory of the server, how long removals take, and snapshots of a volume with a million files.
# Times are those of whole commands; that of one that asks next to nothing is printed beside them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release volumes=500000 work='' keep=no
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --volumes) volumes=$2; shift ;; --dir) work=$2; shift ;; \
            --keep) keep=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ -x "$bin/examples/volumes" ] ||
    { echo "not run: build it with 'cargo build --release -p store --example volumes'"; exit 1; }
[ -n "$work" ] || work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-volumes.XXXXXX")
export RIALTO_RUN=$work/run
cell=$work/cell
rialto() { "$bin/rialto" "$@" --dir "$cell"; }
stop() { rialto down > /dev/null 2>&1 || true; [ $keep = yes ] ||
    rm -rf --one-file-system "$work"; }
trap stop EXIT
trap 'exit 130' INT TERM

now() { date +%s%N; }
seconds() { awk -v t=$(($2 - $1)) 'BEGIN { printf "%.3f", t / 1e9 }'; }
# Milliseconds: median and worst of what comes in, one a line.
summary() {
    sort -n | awk '{ v[NR] = $1 / 1e6 }
        END { printf "median %.1f ms, worst %.1f ms, of %d\n", v[int((NR + 1) / 2)], v[NR], NR }'
}
timed() { local start; start=$(now); "$@" > /dev/null || exit 1; echo $(($(now) - start)); }
memory() { awk '/^VmRSS|^VmHWM/ { printf "%s %d MiB  ", $1, $2 / 1024 }' \
    "/proc/$(head -n 1 "$cell/server.pid")/status"; echo; }

if [ ! -d "$cell" ]; then
    mkdir -p "$work"
    rialto server --daemon > /dev/null 2>&1 || rialto up --no-mount > /dev/null
    rialto down > /dev/null
    for one in 0 1 2; do
        from=$((one * volumes + 1))
        made=$("$bin/examples/volumes" "$work/p$one" "$volumes" $from | tr '\n' ' ')
        echo "partition $((one + 1)): $made"
    done
    sed -i "s|^partition = .*|partitions = [\"vicep\", \"$work/p0\", \"$work/p1\", \"$work/p2\"]|" \
        "$cell/cell.toml"
fi

start=$(now)
"$bin/rialto" server --dir "$cell" > "$work/server.log" 2>&1 &
until rialto vos examine user.7 > /dev/null 2>&1; do
    kill -0 $! 2> /dev/null && [ $(($(now) - start)) -lt 60000000000 ] ||
        { cat "$work/server.log"; exit 1; }
done
echo "start to first reply: $(seconds "$start" "$(now)") s; memory $(memory)"
start=$(now)
listed=$(rialto vos listvol -fast | wc -l)
echo "vos listvol -fast, $listed lines: $(seconds "$start" "$(now)") s; memory $(memory)"
start=$(now)
listed=$(rialto vos listvol | wc -l)
echo "vos listvol, $listed lines: $(seconds "$start" "$(now)") s; memory $(memory)"
repeated() { local one; for one in $(seq "$1"); do "$2"; done | summary; }
look() { timed rialto vos partinfo -partition /vicep; }
remove() { timed rialto vos remove "user.$((one * step + skip))"; }
snapshot() { timed rialto vos snapshot create large "s$(now)"; }
echo "vos partinfo (what a command costs): $(repeated 21 look)"
step=$((volumes / 102)) skip=$((RANDOM % step + 1))
echo "vos remove: $(repeated 101 remove)"
echo "vos snapshot of a volume with a million files: $(repeated 11 snapshot)"
