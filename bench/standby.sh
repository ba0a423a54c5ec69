#!/bin/bash
# standby.sh [--bin DIR] [--rounds N] [--dir DIR] [--alone]: what a synchronous standby costs.
#
#   --bin     where rialto was built [default: target/release]
#   --rounds  how often each is measured [default: 7]
#   --dir     where the cell is made [default: a new directory in $TMPDIR]
#   --alone   no volume has a standby: shows the spread of the two volumes alone
#
# Two servers as processes; a client over TCP, as from another machine, mounts two volumes of the
# first server: one has a standby at the second, the other has none. By turns in each: 5,000 files
# of 4 KiB are made in one directory, and a sync ends it (create-5000, files/s); 4 KiB are written
# and synced again and again for 2 s (fsync, syncs/s); 512 MiB are written in one stream (stream,
# MiB/s), and then synced, too (stream-fsync; both servers have one disk here). Prints the medians
# of the rounds, and their ratio: with a standby to without.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release rounds=7 work='' alone=no
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;; --rounds) rounds=$2; shift ;; --dir) work=$2; shift ;; \
            --alone) alone=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
[ -w /dev/fuse ] || { echo "not run: mounting needs /dev/fuse"; exit 0; }
[ -n "$work" ] || work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-standby.XXXXXX")
export RIALTO_RUN=$work/run
one=$work/one two=$work/two
mkdir -p "$work/with" "$work/without"
rialto() { timeout --kill-after=10 120 "$bin/rialto" "$@"; }
end() {
    for name in with without; do
        rialto umount --lazy --dir "$one" "$work/$name" > /dev/null 2>&1 || true; done
    for dir in "$two" "$one"; do rialto down --lazy --dir "$dir" > /dev/null 2>&1 || true; done
    rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

rialto up --no-mount --dir "$one" --cell standby.bench --listen 127.0.0.1:0 --trust 127.0.0.0/8 \
    --trust-root > /dev/null 2>&1
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$one/cell.toml")
rialto up --dir "$two" --join "$address" --keys "$one/keys" --server two --trust 127.0.0.0/8 \
    --trust-root > /dev/null
for name in with without; do
    rialto vos --dir "$one" create localhost vicep $name > /dev/null
    rialto mount --daemon --dir "$one" --volume $name "$address" "$work/$name"
done
[ $alone = yes ] || rialto vos --dir "$one" addstandby two vicep with -sync > /dev/null

python3 - "$work" "$rounds" << 'MEASURE'
import os, shutil, statistics, sys, time
work, rounds = sys.argv[1], int(sys.argv[2])
body, stream = os.urandom(4096), os.urandom(1 << 20)
def sync_directory(path):
    at = os.open(path, os.O_RDONLY)
    os.fsync(at)
    os.close(at)
def create(tree):
    at = os.path.join(tree, 'many')
    os.mkdir(at)
    began = time.monotonic()
    for number in range(5000):
        file = os.open(os.path.join(at, 'f%05d' % number), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(file, body)
        os.close(file)
    sync_directory(at)
    took = time.monotonic() - began
    shutil.rmtree(at)
    return 5000 / took
def fsync(tree):
    file = os.open(os.path.join(tree, 'synced'), os.O_CREAT | os.O_WRONLY)
    began, count = time.monotonic(), 0
    while time.monotonic() - began < 2:
        os.pwrite(file, body, 4096 * (count % 256))
        os.fsync(file)
        count += 1
    took = time.monotonic() - began
    os.close(file)
    return count / took
def write(tree, syncs=False):
    path = os.path.join(tree, 'stream')
    file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    began = time.monotonic()
    for _ in range(512):
        os.write(file, stream)
    if syncs:
        os.fsync(file)
    os.close(file)
    took = time.monotonic() - began
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)  # The next one begins with an idle disk.
    os.close(file)
    os.unlink(path)
    return 512 / took
tests = [('create-5000', 'files/s', create), ('fsync', 'syncs/s', fsync),
         ('stream', 'MiB/s', write), ('stream-fsync', 'MiB/s', lambda tree: write(tree, True))]
found = {}
for turn in range(rounds + 1):
    for name, _, test in tests:
        sides = ['with', 'without'] if turn % 2 else ['without', 'with']
        for side in sides:
            figure = test(os.path.join(work, side))
            if turn > 0:  # The first round warms up.
                found.setdefault((name, side), []).append(figure)
            time.sleep(0.3)
print('| test | unit | with a standby | without | ratio | spread |')
print('| --- | --- | ---: | ---: | ---: | ---: |')
for name, unit, _ in tests:
    sides = [found[(name, side)] for side in ('with', 'without')]
    medians = [statistics.median(side) for side in sides]
    spread = max((max(side) - min(side)) / statistics.median(side) for side in sides)
    print('| %s | %s | %.0f | %.0f | %.2f | %.0f %% |' %
          (name, unit, *medians, medians[0] / medians[1], spread * 100))
MEASURE
