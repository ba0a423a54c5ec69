#!/bin/bash
# A mount whose process a supervisor restarts, as systemd and Kubernetes do: a keeper of its own
# holds what the kernel needs meanwhile.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ "$QUICK" = no ]; then kills=60; else kills=4; fi
here=$(cd "$(dirname "$0")" && pwd)
dir=$WORK/supervised at=$WORK/supervised/at home=$WORK/supervised/home stop=$WORK/supervised/stop
socket=$dir/run/keeper.sock
mkdir -p "$at" "$home"
workers=() keeper=
cleanup() {
    touch "$stop" "$dir/no-more"
    [ ${#workers[@]} -eq 0 ] || kill "${workers[@]}" 2> /dev/null
    [ -z "$keeper" ] || kill "$keeper" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" > /dev/null 2>&1
}
trap cleanup EXIT
serve() {
    exec "$RIALTO" mount --keeper "$socket" --dir "$home" "unix:$CELL/server.sock" "$at"
}
# Starts the mount's process again and again, a moment after it ended.
supervise() {
    exec 2>> "$dir/log"
    while [ ! -e "$dir/no-more" ]; do
        serve >> "$dir/log" 2>&1 &
        echo $! > "$dir/pid.new" && mv "$dir/pid.new" "$dir/pid"
        wait $!
        echo "ended with $?" >> "$dir/log"
        sleep "0.$((RANDOM % 9))"
    done
}
serves() {
    local i
    for i in $(seq 100); do mountpoint --quiet "$at" && return; sleep 0.1; done
    false
}
kill_all() {
    local i before
    for i in $(seq "$kills"); do
        sleep "0.$((RANDOM % 10))"
        before=$(cat "$dir/pid")
        kill -9 "$before" || return
        # A process that ends may still answer.
        for _ in $(seq 100); do
            [ "$(cat "$dir/pid")" != "$before" ] && break
            sleep 0.1
        done
        within 30 stat "$at/supervised" > /dev/null ||
            { echo "none answers after kill $i"; return 1; }
    done
}
ends_well() { within 120 tail --pid="$1" -f /dev/null; wait "$1" || { cat "$2"; return 1; }; }
refuses_second() {
    ! within 30 "$RIALTO" mount --keeper "$socket" --dir "$dir/home2" \
        "unix:$CELL/server.sock" "$at" > "$dir/second" 2>&1 &&
        grep -q "another process serves $at" "$dir/second"
}
says_none_listens() {
    ! within 30 "$RIALTO" mount --keeper "$dir/none" --dir "$home" "unix:$CELL/server.sock" "$at" \
        > "$dir/none.out" 2>&1 && grep -q "start 'rialto keeper'" "$dir/none.out"
}
unmounts() {
    local pid; pid=$(cat "$dir/pid")
    touch "$dir/no-more"
    within 60 umount "$at" || return
    within 60 tail --pid="$pid" -f /dev/null
    [ "$(tail -n 1 "$dir/log")" = "ended with 0" ] || { tail "$dir/log"; return 1; }
    grep -q "needs no successor" "$dir/keeper.log"
}
# The keeper ends; the mount serves on, and ends as others do.
goes_on_without() {
    serve > "$dir/log2" 2>&1 & local pid=$!
    workers=($pid)
    serves || return
    kill "$keeper"; wait "$keeper" || return
    keeper=
    echo text > "$at/supervised/after" && within 60 umount "$at" && wait $pid
}

# All volumes in one mount, and a keeper of its own: what is open in a volume below stays open.
flat() {
    local pid
    "$RIALTO" vos create -name supervised.below --dir "$CELL" > "$dir/vos" 2>&1 &&
        "$RIALTO" fs mkmount "$A/supervised/below" supervised.below || { cat "$dir/vos"; return 1; }
    mkdir "$A/supervised/below/dir"
    within 60 "$RIALTO" mount --daemon --keep --flat --dir "$home" "unix:$CELL/server.sock" "$at" ||
        return
    python3 - "$at/supervised/below/dir" "$home"/mounts/*.pid "$B/supervised/below/dir" << 'END'
import fcntl, os, signal, sys, time
place, pid_file, other = sys.argv[1:]
file = open(f'{place}/file', 'w+b', buffering=0)
file.write(b'first ')
fcntl.lockf(file, fcntl.LOCK_EX)
os.chdir(place)
number = os.stat('file').st_ino
for count in range(3):
    keeper = int(open(pid_file).readline())
    daemon = int(open(f'/proc/{keeper}/task/{keeper}/children').read())
    os.kill(daemon, signal.SIGKILL)
    file.write(b'more ')
    assert os.stat('file').st_ino == number, 'it has another number'
    assert os.listdir('.') == ['file'], os.listdir('.')
    open(f'new-{count}', 'w').close()
    os.remove(f'new-{count}')
os.fsync(file.fileno())
assert os.pread(file.fileno(), 100, 0) == b'first more more more '
seen = open(f'{other}/file', 'r+b')
assert seen.read() == b'first more more more '
try:
    fcntl.lockf(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sys.exit('the lock is lost')
except OSError:
    pass
END
    local status=$?
    within 60 umount "$at" && [ $status = 0 ]
}

mkdir "$A/supervised"
check "a mount says that no keeper listens" says_none_listens
"$RIALTO" keeper "$socket" > "$dir/keeper.log" 2>&1 & keeper=$!
for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.1; done
check "others cannot connect to the keeper" test "$(stat -c %a "$socket")" = 600
supervise & supervisor=$!
check "mount --keeper" serves
python3 "$here/../lib/open_files.py" "$at/supervised" "$stop" > "$dir/load" 2>&1 & load=$!
workers=($load)
for _ in $(seq 100); do [ -e "$A/supervised/lines" ] && break; sleep 0.1; done
check "the process is killed $kills times, and started again" kill_all
check "a second process for the same place is refused" refuses_second
touch "$stop"
check "no call failed, and all that was written is there" ends_well $load "$dir/load"
note "$(head -n 1 "$dir/load")"
check "it unmounts, and the keeper lets it go" unmounts
wait $supervisor
check "a mount goes on when its keeper ends" goes_on_without
workers=()
check "volumes below stay in a --flat mount" flat
"$RIALTO" fs rmmount "$A/supervised/below" > /dev/null
rm -rf "$A/supervised"
finish
