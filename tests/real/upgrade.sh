#!/bin/bash
# A cell is upgraded server by server under programs with open files: the server with the database,
# the other one, then the level of the cell, then the partitions. Until then nothing is written that
# the program before could not read, and standbys are refused. The long form builds the program
# before from the project's history; the quick one begins with a cell and partitions of its level.
. "$(dirname "$0")/../lib/real.sh"
base=$WORK/upgrade
mkdir -p "$base/mount/tree"
A=$base/a B=$base/b
tree=$base/mount/tree
# The last program of level 1.
BEFORE=68a3aabb
OLD=$RIALTO level=(--level 1)
end() {
    touch "$base/stop"
    within 30 "$RIALTO" umount --lazy --dir "$A" "$tree" > /dev/null 2>&1
    for dir in "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done
}
trap end EXIT
cell() { within 60 "$RIALTO" cell --dir "$A" "$@"; }
vos() { within 60 "$RIALTO" vos --dir "$A" "$@"; }
in_time() { local _; for _ in $(seq 120); do "$@" > /dev/null 2>&1 &&
    return 0; sleep 0.5; done; "$@"; }

# old_program: builds it, once for all runs.
old_program() {
    local source=$CACHE/before-$BEFORE repository
    repository=$(cd "$(dirname "$0")/../.." && pwd)
    OLD=$source/target/release/rialto level=()
    [ -x "$OLD" ] && return
    if ! git -C "$repository" cat-file -e "$BEFORE^{commit}" 2> /dev/null; then
        skip "the project's history is not here, so there is no program before"
        finish
    fi
    rm -rf "$source"
    git -C "$repository" worktree prune
    check "the program before is built" within 3600 sh -c "
        git -C '$repository' worktree add --detach '$source' '$BEFORE' &&
        cd '$source' &&
        CARGO_TARGET_DIR='$source/target' cargo build --release --locked -p rialto" ||
        finish
}
[ "$QUICK" = yes ] || old_program

check "a cell of level 1" within 90 "$OLD" up --no-mount --dir "$A" --cell upgrade.test \
    --listen 127.0.0.1:0 "${level[@]}"
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
check "a second server joins it" within 90 "$OLD" up --dir "$B" --join "$address" \
    --keys "$A/keys" --server two
first=$(vos listaddrs --json | python3 -c 'import json, sys
print([s["name"] for s in map(json.loads, sys.stdin) if s["name"] != "two"][0])')
check "a volume on the second" vos create two vicep work
check "it is mounted" within 60 "$RIALTO" mount --daemon --dir "$A" --volume work \
    "unix:$A/server.sock" "$tree"

# Holds a lock and files open, one of them without a name, and writes all the time.
cat > "$base/writer.py" << 'WRITER'
import fcntl, os, sys, time
tree, stop = sys.argv[1:]
nameless = open(os.path.join(tree, 'nameless'), 'w+')
nameless.write('kept')
nameless.flush()
os.unlink(os.path.join(tree, 'nameless'))
log = open(os.path.join(tree, 'log'), 'w')
fcntl.flock(log, fcntl.LOCK_EX)
number = 0
while not os.path.exists(stop):
    log.write('%d\n' % number)
    log.flush()
    os.fsync(log.fileno())
    number += 1
    time.sleep(0.02)
nameless.seek(0)
assert nameless.read() == 'kept'
with open(os.path.join(tree, 'log')) as read:
    assert [int(line) for line in read] == list(range(number))
print('written', number)
WRITER
python3 "$base/writer.py" "$tree" "$base/stop" > "$base/writer.log" 2>&1 &
writer=$!
grew() { [ "$(wc -l < "$tree/log")" -gt "$1" ]; }
goes_on() { in_time grew "$(wc -l < "$tree/log")"; }
check "a program writes there" in_time test -s "$tree/log"

# upgrade DIR: the same server with the new program. 'rialto down' would end the mount too.
upgrade() {
    local pid; pid=$(head -n 1 "$1/server.pid")
    kill "$pid" && in_time is_over "$pid" && within 90 "$RIALTO" up --no-mount --dir "$1"
}
check "the server with the database is upgraded" upgrade "$A"
check "the program goes on" goes_on
check "the cell is at level 1 still" says '"level":1' 0 cell status --json
if [ "$QUICK" = no ]; then
    check "the server with the program before is named" says "not to two" 1 cell upgrade
fi
check "the other server is upgraded" upgrade "$B"
check "the program goes on" goes_on
check "both have told their programs" in_time says "can be raised to 2" 0 cell upgrade --dry-run
check "status says that the cell can be upgraded" says "'rialto cell upgrade' raises it to 2" 0 \
    within 30 "$RIALTO" status --dir "$A"
check "doctor too" says "all its servers know 2" 0 within 60 "$RIALTO" doctor --dir "$A" \
    --only "cell level"
check "nothing of level 2 before" says "need level 2 of the cell: 'rialto cell upgrade'" 1 \
    vos addstandby "$first" vicep work
check "partitions stay too" says "has format 2, that of the cell's level" 0 \
    vos upgradepartition two vicep
check "the cell is upgraded" says "the cell is at level 2" 0 cell upgrade
check "it is at the newest level" says "the newest" 0 cell upgrade
check "partitions are the next step" says "'rialto vos upgradepartition $first vicep'" 1 \
    vos addstandby "$first" vicep work
check "it can be raised" says "it can be raised to 3" 0 vos upgradepartition -server two -dryrun
check "it is raised" says "has format 3; before it had 2" 0 vos upgradepartition two vicep
check "and at the first" says "has format 3; before it had 2" 0 \
    vos upgradepartition -server "$first"
check "again nothing happens" says "has format 3, the newest" 0 vos upgradepartition two vicep
check "a standby is added" says "is in step" 0 vos addstandby "$first" vicep work
check "the program goes on" goes_on
touch "$base/stop"
check "and has written all" wait "$writer"
check "as it says" grep written "$base/writer.log"
if [ "$QUICK" = no ]; then
    check "a server is stopped" within 60 "$RIALTO" down --dir "$B"
    check "the program before opens no partition of it" says "has format version 3" 1 \
        within 90 "$OLD" up --no-mount --dir "$B"
fi
finish
