#!/bin/bash
# move.sh [--bin DIR] [--moves N] [--files N] [--dir DIR] [--far]: a volume moves there and back
# between two servers while a build and others work in it.
#
#   --bin     where rialto was built [default: target/release]
#   --moves   how often, there and back together [default: 40]
#   --files   that the volume holds besides [default: 10000]
#   --dir     where the cell is made [default: a new directory in $TMPDIR]
#   --far     the client reaches both servers over TCP, as from another machine
#
# Two servers as processes, one mount. In the volume a build of 200 C files (make -j2, from the
# beginning each time) goes on, and a prober makes, writes, syncs, renames, stats, reads and removes
# files, each operation timed by itself. Prints the longest wait of each move, whatever the
# operation, and of as many stretches of the same length without a move. Any failed operation, any
# failed build, or a file that is not as it was ends it with 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release moves=40 files=10000 work='' far=no
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --moves) moves=$2; shift ;; --files) files=$2; shift ;; \
            --dir) work=$2; shift ;; --far) far=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] ||
    { echo "not run: mounting needs root and /dev/fuse"; exit 0; }
command -v make > /dev/null && command -v cc > /dev/null ||
    { echo "not run: a build needs make and cc"; exit 0; }
[ -n "$work" ] || work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-move.XXXXXX")
export RIALTO_RUN=$work/run
mkdir -p "$work/tree"
one=$work/one two=$work/two tree=$work/tree
rialto() { timeout --kill-after=10 120 "$bin/rialto" "$@"; }
end() {
    touch "$work/stop"
    wait
    rialto umount --lazy --dir "$one" "$tree" > /dev/null 2>&1 || true
    for dir in "$two" "$one"; do rialto down --lazy --dir "$dir" > /dev/null 2>&1 || true; done
    rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

rialto up --no-mount --dir "$one" --cell move.bench --listen 127.0.0.1:0 --trust 127.0.0.0/8 \
    --trust-root > /dev/null 2>&1
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$one/cell.toml")
rialto up --dir "$two" --join "$address" --keys "$one/keys" --server two --trust 127.0.0.0/8 \
    --trust-root > /dev/null
rialto vos --dir "$one" create -name bench -server localhost > /dev/null
[ $far = yes ] && server=$address || server=unix:$one/server.sock
rialto mount --daemon --dir "$one" --volume bench "$server" "$tree"

mkdir -p "$tree/files" "$tree/build" "$tree/probe"
python3 - "$tree" "$files" <<'PY'
import os, sys
tree, files = sys.argv[1], int(sys.argv[2])
for number in range(files):
    if number % 500 == 0:
        os.mkdir(f"{tree}/files/{number // 500}")
    with open(f"{tree}/files/{number // 500}/{number}", "wb") as file:
        file.write(b"%08d" % number * (number % 1500))
build = f"{tree}/build"
for number in range(200):
    with open(f"{build}/part{number}.c", "w") as file:
        file.write('#include "all.h"\n')
        after = (number + 1) % 200
        for at in range(30):
            file.write(f"int part{number}_{at}(int x) ")
            file.write(f"{{ return x * {at} + part{after}_{at}(x - 1); }}\n")
with open(f"{build}/all.h", "w") as file:
    file.write("#include <stdio.h>\n#include <string.h>\n")
    for number in range(200):
        file.writelines(f"int part{number}_{at}(int);\n" for at in range(30))
with open(f"{build}/main.c", "w") as file:
    file.write('#include "all.h"\nint main(void) { return part0_0(0) == 1; }\n')
with open(f"{build}/Makefile", "w") as file:
    file.write("objects := $(patsubst %.c,%.o,$(wildcard *.c))\n")
    file.write("program: $(objects)\n\tcc -o $@ $^\n")
    file.write("%.o: %.c all.h\n\tcc -c -o $@ $<\n")
    file.write("clean:\n\trm -f program *.o\n")
PY
sync -f "$tree/files"
sum() { (cd "$tree/files" && find . -type f -print0 | sort -z | xargs -0 cat | sha256sum); }
before=$(sum)

build() {
    local done=0
    while [ ! -e "$work/stop" ]; do
        make -s -C "$tree/build" clean && make -s -j2 -C "$tree/build" > "$work/build.log" 2>&1 ||
            { echo "a build failed: $(tail -n 3 "$work/build.log")"; return 1; }
        done=$((done + 1))
    done
    echo "$done builds"
}
build > "$work/builds" & builder=$!
cat > "$work/probe.py" <<'PY'
import os, sys, time
dir, stop, out = sys.argv[1:]
waits, count, large = [], 0, os.urandom(1 << 20)
def timed(what, do):
    begin = time.time()
    result = do()
    waits.append((begin, time.time() - begin, what))
    return result
while not os.path.exists(stop):
    name, other = f"{dir}/{count % 50}", f"{dir}/{count % 50}.new"
    data = b"%08d\n" % count * 100
    fd = timed("create", lambda: os.open(other, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644))
    timed("write", lambda: os.write(fd, data))
    timed("fsync", lambda: os.fsync(fd))
    timed("close", lambda: os.close(fd))
    timed("rename", lambda: os.rename(other, name))
    timed("stat", lambda: os.stat(name))
    with timed("open", lambda: open(name, "rb")) as file:
        assert timed("read", file.read) == data, name
    if count % 7 == 0:
        timed("unlink", lambda: os.unlink(name))
    if count % 40 == 0:
        # Large enough for the kernel to write it by itself where the server is on this machine.
        with timed("create large", lambda: open(f"{dir}/large", "wb")) as file:
            for _ in range(4):
                timed("write 1 MiB", lambda: file.write(large))
            timed("flush", file.flush)
        timed("stat large", lambda: os.stat(f"{dir}/large"))
    count += 1
    time.sleep(0.002)
with open(out, "w") as file:
    file.writelines(f"{begin:.6f} {wait:.6f} {what}\n" for begin, wait, what in waits)
PY
python3 "$work/probe.py" "$tree/probe" "$work/stop" "$work/waits" & prober=$!
sleep 5
to=two
for move in $(seq "$moves"); do
    started=$(date +%s.%N)
    for try in 1 2 3 4 5; do
        rialto vos --dir "$one" move bench -toserver $to > "$work/move.log" 2>&1 && break
        refused=$((${refused:-0} + 1))
        tail -n 1 "$work/move.log" >> "$work/refusals"
        [ $try -lt 5 ] || { echo "move $move failed: $(tail -n 3 "$work/move.log")"; exit 1; }
    done
    ended=$(date +%s.%N)
    cat "$work/move.log" >> "$work/said"
    echo "move $started $ended"
    sleep 2
    # Behind it, a stretch of the same length in which nothing moves.
    echo "rest $ended $(awk -v s="$started" -v e="$ended" \
        'BEGIN { d = e - s; print e + (d < 2 ? d : 2) }')"
    [ $to = two ] && to=localhost || to=two
done > "$work/moves"
touch "$work/stop"
wait $builder || { cat "$work/builds"; exit 1; }
wait $prober || { echo "an operation failed"; exit 1; }
[ "$(sum)" = "$before" ] || { echo "files are not as they were"; exit 1; }
cat "$work/builds"
sed -n 's/.*(\([0-9]*\) ms)$/\1/p' "$work/said" | sort -n |
    awk '{ v[NR] = $1 }
        END {
            printf "the hold, in which changes wait: median %d ms, ", v[int((NR + 1) / 2)]
            printf "worst %d ms, of %d\n", v[NR], NR
        }'
[ ! -e "$work/refusals" ] ||
    { echo "${refused} moves were refused and asked for again:"; sort "$work/refusals" | uniq -c; }
python3 - "$work/moves" "$work/waits" <<'PY'
import sys
stretches = [line.split() for line in open(sys.argv[1])]
lines = (line.split(None, 2) for line in open(sys.argv[2]))
waits = [(float(b), float(w), what) for b, w, what in lines]
print(f"{len(waits)} operations timed, none failed")
for kind, title in (("move", "longest wait of each move"), ("rest", "of each stretch without")):
    longest = []
    for _, start, end in (one for one in stretches if one[0] == kind):
        start, end = float(start), float(end)
        met = ((w, what) for b, w, what in waits if b < end and b + w > start)
        longest.append(max(met, default=(0, "")))
    longest.sort()
    ms = [w * 1000 for w, _ in longest]
    at = lambda share: ms[min(len(ms) - 1, int(share * len(ms)))]
    print(f"{title}: median {at(.5):.0f} ms, p90 {at(.9):.0f}, p99 {at(.99):.0f}, "
        f"worst {ms[-1]:.0f} ({longest[-1][1].strip()}), of {len(ms)}")
moves = [(float(start), float(end)) for kind, start, end in stretches if kind == "move"]
inside = [w for b, w, _ in waits if any(b < end and b + w > start for start, end in moves)]
inside.sort()
at = lambda share: inside[int(share * len(inside))] * 1000
print(f"all operations while it moved: p99 {at(.99):.1f} ms, p99.9 {at(.999):.1f} ms, "
    f"of {len(inside)}")
lasted = sorted(end - start for start, end in moves)
print(f"a move took {lasted[len(lasted) // 2]:.2f} s in the median")
PY
