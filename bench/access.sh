#!/bin/bash
# access.sh [--bin DIR] [--runs N] [--mib N] [--json]: what it costs to know who asks.
#
#   --bin    where rialto was built [default: target/release]
#   --runs   of each kind; the median counts [default: 5]
#   --mib    size of the large file [default: 256]
#   --json   one object instead of the table
#
# The same work through a mount over TCP on this machine, twice: with everything on (TLS, a user
# with a token of a password, a volume where a list of 20 entries decides, encrypted on the disk)
# and with everything off (clear text with checksums, a machine whose numbers are believed, mode
# bits, no encryption). The audit log is there in both. Alternating, so that both see the same
# machine. Beside times it counts what the server was asked while everything was warm: nothing, or
# the warm path is none. Needs root and /dev/fuse.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release runs=5 mib=256 json=
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --runs) runs=$2; shift ;; --mib) mib=$2; shift ;; \
            --json) json=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || { echo "not run: root and /dev/fuse are needed"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-access.XXXXXX")
export RIALTO_RUN=$work/run
chmod 755 "$work"
user=4711
rialto() { "$bin/rialto" "$@"; }
stop() {
    for kind in on off; do
        rialto umount --lazy --dir "$work/client-$kind" "$work/mnt-$kind" > /dev/null 2>&1 || true
        rialto down --dir "$work/$kind" > /dev/null 2>&1 || true
    done
    rm -rf --one-file-system "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

cat > "$work/phase.py" << 'PYTHON'
# phase.py PHASE DIR MIB: does it, and prints the nanoseconds.
import os, sys, time

phase, at, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
big, small = os.path.join(at, "big"), os.path.join(at, "small")
names = [os.path.join(small, f"{number // 100}/f{number}") for number in range(1000)]
chunk = bytes(range(256)) * 4096


def read(path, step):
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, step):
        pass
    os.close(fd)


def write():
    fd = os.open(big, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number in range(mib):
        os.write(fd, number.to_bytes(8, "little") + chunk[8:])
    os.fsync(fd)
    os.close(fd)


def make():
    os.mkdir(small)
    for number in range(10):
        os.mkdir(os.path.join(small, str(number)))
    for name in names:
        with open(name, "wb", 0) as file:
            file.write(chunk[:4096])
    fd = os.open(small, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def remove():
    for name in names:
        os.unlink(name)
    for number in range(10):
        os.rmdir(os.path.join(small, str(number)))
    os.rmdir(small)


def stat():
    for _ in range(200):
        for name in names:
            os.stat(name)


def opens():
    for _ in range(50):
        for name in names:
            read(name, 1 << 16)


def random_reads():
    fd = os.open(big, os.O_RDONLY)
    place = 1
    for _ in range(300000):
        place = place * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        os.pread(fd, 4096, (place >> 20) % (mib << 20 >> 12) << 12)
    os.close(fd)


works = {
    "write": write,
    "make": make,
    "remove": remove,
    "read": lambda: read(big, 1 << 20),
    "stat": stat,
    "open": opens,
    "random": random_reads,
}
work = works[phase]
begin = time.perf_counter_ns()
work()
print(time.perf_counter_ns() - begin)
PYTHON

address() { sed -n 's/^listen = "\(.*\)"/\1/p' "$work/$1/cell.toml"; }
mounted() { # mounted KIND: with an empty cache
    rm -rf "$work/client-$1"
    case $1 in
        on) rialto mount --daemon --dir "$work/client-on" \
            --volume real "$(address on)" "$work/mnt-on" > /dev/null
            printf 'open sesame\n' |
                setpriv --reuid $user --regid $user --clear-groups "$bin/rialto" login bench \
                --password-stdin --path "$work/mnt-on" > /dev/null ;;
        off) RIALTO_CLEAR=1 rialto mount --daemon --dir "$work/client-off" \
            --volume real "$(address off)" "$work/mnt-off" > /dev/null ;;
    esac
}
unmounted() { rialto umount --dir "$work/client-$1" "$work/mnt-$1" > /dev/null; }
phase() { # phase KIND PHASE [NAME]
    setpriv --reuid $user --regid $user --clear-groups /usr/bin/python3 "$work/phase.py" "$2" \
        "$work/mnt-$1" "$mib" >> "$work/${3:-$2}-$1"
}
# What the server was asked until now, by call.
asked() {
    rialto status --json --dir "$work/$1" | python3 -c '
import json, sys
calls = json.load(sys.stdin)["report"]["calls"]
counts = {name: one["count"] if isinstance(one, dict) else one for name, one in calls.items()}
json.dump(counts, sys.stdout)'
}

for kind in on off; do
    mkdir -p "$work/mnt-$kind"
    options=(--trust 127.0.0.0/8 --trust-root)
    [ $kind = off ] || options=(--encrypt)
    rialto up --dir "$work/$kind" --listen 127.0.0.1:0 "${options[@]}" --no-mount > /dev/null
    if [ $kind = off ]; then
        rialto down --dir "$work/off" > /dev/null
        sed -i '1i clear = true' "$work/off/cell.toml"
        rialto server --daemon --dir "$work/off" > /dev/null
    fi
    rialto pts createuser bench -uid $user --dir "$work/$kind" > /dev/null
done
list=(bench all)
for number in $(seq 18); do
    rialto pts createuser "other$number" --dir "$work/on" > /dev/null
    list+=("other$number" read)
done
rialto vos create real -encrypt -model acl -acl "${list[@]}" --dir "$work/on" > /dev/null
rialto vos create real --dir "$work/off" > /dev/null
for kind in on off; do
    rialto mount --daemon --dir "$work/client-$kind" \
        --volume real "unix:$work/$kind/server.sock" "$work/mnt-$kind" > /dev/null
    [ $kind = on ] && printf 'open sesame\n' |
        rialto passwd bench --new-only --password-stdin --path "$work/mnt-on" > /dev/null
    chown $user:$user "$work/mnt-$kind"
    unmounted $kind
done

for run in $(seq "$runs"); do
    for kind in on off; do
        mounted $kind
        phase $kind write
        phase $kind make
        unmounted $kind
        mounted $kind
        phase $kind read first
        # The cache keeps what is read while others wait for it as far as its disk follows: warm is
        # when a reading asks nobody.
        for _ in $(seq 10); do
            phase $kind open warming
            phase $kind read warming
            sleep 0.5
        done
        asked $kind > "$work/earlier"
        asked $kind > "$work/before"
        phase $kind read again; phase $kind read again; phase $kind read again
        phase $kind random
        phase $kind stat
        phase $kind open
        asked $kind > "$work/after"
        # Without what it costs to ask.
        python3 -c '
import collections, json, sys
earlier, before, after = (collections.Counter(json.load(open(name))) for name in sys.argv[1:])
print(json.dumps(dict(after - before - (before - earlier))))' "$work/earlier" "$work/before" \
    "$work/after" >> "$work/asked-$kind"
        phase $kind remove
        unmounted $kind
    done
    [ -n "$json" ] || echo "run $run of $runs, load $(cut -d' ' -f1 /proc/loadavg)" >&2
done
python3 - "$work" "$mib" "${json:-no}" "$runs" << 'PYTHON'
import json, os, statistics, sys

work, mib, wanted, runs = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rows = [
    ("write", f"write {mib} MiB, fsync", mib * 1.048576, "MB/s"),
    ("make", "1,000 files of 4 KiB, fsync", 1000, "files/s"),
    ("first", f"read {mib} MiB for the first time", mib * 1.048576, "MB/s"),
    ("again", "again, from the client's cache", mib * 1.048576, "MB/s"),
    ("random", "300,000 reads of 4 KiB there", 300000, "reads/s"),
    ("stat", "200,000 stat, warm", 200000, "stat/s"),
    ("open", "50,000 open, read, close, warm", 50000, "files/s"),
    ("remove", "1,000 files removed", 1000, "files/s"),
]


def values(name, kind):
    return [json.loads(line) for line in open(os.path.join(work, f"{name}-{kind}"))]



shown, table = {}, []
for name, text, amount, unit in rows:
    on, off = (amount / statistics.median(values(name, kind)) * 1e9 for kind in ("on", "off"))
    pairs = [one_off / one_on for one_on, one_off in zip(values(name, "on"), values(name, "off"))]
    shown[name] = {"on": on, "off": off, "unit": unit, "ratio": on / off, "ratios": pairs}
    speeds = f"{on:,.0f} {unit} | {off:,.0f} {unit} | {on / off:.2f}"
    table.append(f"| {text} | {speeds} | {min(pairs):.2f} to {max(pairs):.2f} |")
asked = {kind: values("asked", kind) for kind in ("on", "off")}
if wanted == "yes":
    print(json.dumps({"runs": runs, "mib": mib, "phases": shown, "asked_while_warm": asked}))
else:
    print("| | everything on | everything off | on / off | of single runs |\n|---|---|---|---|---|")
    print("\n".join(table))
    for kind, runs in asked.items():
        each = ", ".join(json.dumps(run) for run in runs)
        print(f"\nasked of the server while all was warm, everything {kind}: {each}")
PYTHON
