#!/bin/bash
# others.sh [--bin DIR] [--runs N] [--json]: what it costs to own nothing.
#
#   --bin    where rialto was built [default: target/release]
#   --runs   of each kind; the median counts [default: 9]
#   --json   one object instead of the table
#
# A tree of 4,000 files of 4 KiB in a volume where mode bits decide, open to all, is read through
# one kind of mount by who owns it and by somebody else, each time by a client that knows nothing
# yet, and then read again and looked at. The kernel keeps what the owner may do with the status of
# a file; for anybody else it asks the mount once for the file's access list, which might have been
# begun. Requests are counted where the kernel has tracepoints. Needs root and /dev/fuse.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release runs=9 json=
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --runs) runs=$2; shift ;; --json) json=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] || { echo "not run: root and /dev/fuse are needed"; exit 0; }
work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-others.XXXXXX")
export RIALTO_RUN=$work/run
chmod 755 "$work"
mkdir "$work/mnt"
rialto() { "$bin/rialto" "$@"; }
stop() {
    rialto umount --lazy --dir "$work/client" "$work/mnt" > /dev/null 2>&1 || true
    rialto down --dir "$work/cell" > /dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

cat > "$work/phases.py" << 'PYTHON'
# phases.py TREE UID: as that user; a line of nanoseconds and requests for each phase.
import json, os, re, sys, time

tree, uid = sys.argv[1], int(sys.argv[2])
tracing = "/sys/kernel/tracing/"
counts = os.path.exists(tracing + "events/fuse")
connection = os.stat(tree).st_dev


def trace(on):
    if counts:
        with open(tracing + "events/fuse/fuse_request_send/enable", "w") as file:
            file.write(str(int(on)))


def read():
    for at, _, names in os.walk(tree):
        for name in names:
            with open(os.path.join(at, name), "rb", 0) as file:
                file.read()


def stat():
    for at in range(20):
        for name in range(200):
            os.stat(f"{tree}/d{at}/f{name}")


for phase in (read, read, stat):
    if counts:
        open(tracing + "trace", "w").close()
    ends, begins = os.pipe()
    trace(True)
    child = os.fork()
    if not child:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        begin = time.perf_counter_ns()
        phase()
        os.write(begins, str(time.perf_counter_ns() - begin).encode())
        os._exit(0)
    os.waitpid(child, 0)
    trace(False)
    asked = None
    if counts:
        # Forgets and releases are waited for by nobody.
        with open(tracing + "trace") as file:
            names = re.findall(rf"connection {connection} .*\(FUSE_(\w+)\)", file.read())
        asked = sum(name not in ("FORGET", "BATCH_FORGET", "RELEASE") for name in names)
    print(json.dumps([int(os.read(ends, 64)), asked]))
PYTHON

rialto up --dir "$work/cell" --listen 127.0.0.1:0 --trust 127.0.0.0/8 --trust-root --no-mount \
    > /dev/null
rialto vos create tree --dir "$work/cell" > /dev/null
mounted() {
    rm -rf "$work/client"
    rialto mount --daemon --dir "$work/client" \
        --volume tree "unix:$work/cell/server.sock" "$work/mnt" > /dev/null
}
unmounted() { rialto umount --dir "$work/client" "$work/mnt" > /dev/null; }
mounted
chmod 755 "$work/mnt"
for dir in $(seq 0 19); do
    mkdir "$work/mnt/d$dir"
    for file in $(seq 0 199); do head -c 4096 /dev/zero > "$work/mnt/d$dir/f$file"; done
done
chown -R 4711:4711 "$work/mnt"
unmounted
for run in $(seq "$runs"); do
    for who in 4711 4712; do
        mounted
        /usr/bin/python3 "$work/phases.py" "$work/mnt" $who | paste -sd, |
            sed 's/.*/[&]/' >> "$work/$who"
        unmounted
    done
    [ -n "$json" ] || echo "run $run of $runs, load $(cut -d' ' -f1 /proc/loadavg)" >&2
done
python3 - "$work" "${json:-no}" << 'PYTHON'
import json, os, statistics, sys

work, wanted = sys.argv[1], sys.argv[2]
load = lambda who: [json.loads(line) for line in open(os.path.join(work, who))]
owner, other = load("4711"), load("4712")
rows = [
    "read 4,000 files of 4 KiB for the first time",
    "read them again",
    "stat them by their whole paths",
]
shown = []
for at, text in enumerate(rows):
    times = [statistics.median(run[at][0] for run in runs) / 4000 / 1000 for runs in (owner, other)]
    asked = [run[0][at][1] for run in (owner, other)]
    pairs = [two[at][0] / one[at][0] for one, two in zip(owner, other)]
    ratio = times[1] / times[0]
    row = {"what": text, "us": times, "requests": asked, "ratio": ratio, "ratios": pairs}
    shown.append(row)
if wanted == "yes":
    print(json.dumps(shown))
else:
    print("| | owner | somebody else | else / owner | single runs | requests of each |")
    print("|---|---|---|---|---|---|")
    for row in shown:
        each = " and ".join("?" if one is None else f"{one / 4000:.2f}" for one in row["requests"])
        lo, hi = min(row["ratios"]), max(row["ratios"])
        times = f"{row['us'][0]:.1f} us | {row['us'][1]:.1f} us | {row['ratio']:.2f}"
        print(f"| {row['what']} | {times} | {lo:.2f} to {hi:.2f} | {each} |")
PYTHON
