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
workers=() keeper= tight=
cleanup() {
    touch "$stop" "$dir/no-more"
    local one
    for one in "$dir/six" "$dir/tight"; do
        mountpoint --quiet "$one" && within 60 umount --lazy "$one"
    done
    [ -z "$tight" ] || kill -9 "$tight" 2> /dev/null
    ! mountpoint --quiet "$dir/small" || umount --lazy "$dir/small"
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
# Processes that want one place at once, by all names that it has: one has it, and the others say
# why they have not.
six_at_once() {
    local i pids=() names=(six six/ six/. ./six six//. six) left winner
    mkdir -p "$dir/six"
    for i in 0 1 2 3 4 5; do
        "$RIALTO" mount --keeper "$socket" --dir "$dir/six-home$i" "unix:$CELL/server.sock" \
            "$dir/${names[i]}" > "$dir/six.$i" 2>&1 & pids+=($!)
    done
    workers=("${pids[@]}")
    for _ in $(seq 300); do
        left=()
        for i in 0 1 2 3 4 5; do is_over "${pids[i]}" || left+=("$i"); done
        [ ${#left[@]} -le 1 ] && mountpoint --quiet "$dir/six" && break
        sleep 0.1
    done
    [ ${#left[@]} = 1 ] || { echo "${#left[@]} have the place"; cat "$dir"/six.?; return 1; }
    winner=${left[0]}
    for i in 0 1 2 3 4 5; do
        [ "$i" = "$winner" ] && continue
        wait "${pids[i]}" && { echo "$i ended well"; return 1; }
        grep -q "another process serves $dir/six" "$dir/six.$i" || { cat "$dir/six.$i"; return 1; }
    done
    echo text > "$dir/six/supervised/six" && within 60 umount "$dir/six" &&
        wait "${pids[winner]}" && workers=() && [ "$(cat "$A/supervised/six")" = text ]
}

# A mount whose records are on a small disk. Its process runs as $tight.
serve_tight() {
    "$RIALTO" mount --keeper "$socket" --dir "$dir/small" "$(tcp_address)" "$dir/tight" \
        > "$dir/tight.log" 2>&1 & tight=$!
}
kill_tight() { kill -9 "$tight"; wait "$tight" 2> /dev/null; tight=; }
tight_answers() {
    within 60 stat "$dir/tight/supervised" > /dev/null || { cat "$dir/tight.log"; return 1; }
}
begin_tight() {
    mkdir -p "$dir/small" "$dir/tight" && mount -t tmpfs -o size=8m rialto-small "$dir/small" ||
        return
    serve_tight
    for _ in $(seq 100); do mountpoint --quiet "$dir/tight" && break; sleep 0.1; done
    # Open and locked, as long as the test. In a process of its own: a child of this shell that
    # inherited the file would wait at its end for the mount.
    mkfifo "$dir/words" || return
    python3 -c 'import fcntl, sys
file = open(sys.argv[1], "ab", buffering=0)
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
for word in sys.stdin: file.write(word.encode())' "$dir/tight/supervised/held" < "$dir/words" &
    workers=($!)
    exec 8> "$dir/words" && holds first
}
# The program that has the file open appends a word, and the other mount sees it.
holds() {
    local i
    echo "$1" >&8
    for i in $(seq 100); do
        [ "$(tail -n 1 "$A/supervised/held")" = "$1" ] && return
        sleep 0.1
    done
    echo "'$1' is not there:"; cat "$A/supervised/held" "$dir/tight.log"; return 1
}
# The successor says why it cannot begin, with this text, and the mount is not lost.
fails_to_succeed() { # fails_to_succeed TEXT
    serve_tight
    within 60 tail --pid="$tight" -f /dev/null
    wait "$tight" && { echo "it ended well"; return 1; }
    tight=
    grep -q "$1" "$dir/tight.log" || { cat "$dir/tight.log"; return 1; }
    mountpoint_in_table "$dir/tight"
}
# Without a look at it, which would wait.
mountpoint_in_table() { grep -qF " $1 " /proc/self/mountinfo; }
# The next process goes on with all that was open.
succeeds() { # succeeds WORD
    serve_tight
    tight_answers && holds "$1" && ! flock --nonblock "$A/supervised/held" true
}
full_disk() {
    kill_tight
    # Some bytes are left: each write may be the first that fails.
    head -c 100M /dev/zero > "$dir/small/fill" 2> /dev/null
    [ "$1" = 0 ] || truncate --size="-$1" "$dir/small/fill"
    serve_tight
    local pid=$tight
    for _ in $(seq 100); do
        is_over "$pid" && break
        within 1 stat "$dir/tight/supervised" > /dev/null 2>&1 && break
    done
    mountpoint_in_table "$dir/tight" || { cat "$dir/tight.log"; return 1; }
    if is_over "$pid"; then
        tight=
        grep -q "No space left" "$dir/tight.log" || { cat "$dir/tight.log"; return 1; }
    else
        holds "full-$1" || return
        kill_tight
    fi
    rm "$dir/small/fill"
    succeeds "room-$1"
}
# A file that it cannot write ends no takeover.
blocked_facts() {
    kill_tight
    local facts; facts=$(ls "$dir/small/mounts/"*.json) && rm "$facts" && mkdir "$facts" || return
    succeeds blocked && rmdir "$facts"
}
other_version() {
    kill_tight
    local version; version=$(python3 "$here/../lib/keeper_attacks.py" version "$socket" \
        "$dir/tight" rlt-kp99) || return
    local i
    for i in 1 2 3; do fails_to_succeed "another version" || return; done
    python3 "$here/../lib/keeper_attacks.py" version "$socket" "$dir/tight" "$version" &&
        succeeds again
}
refuses_strangers() {
    local answer
    python3 "$here/../lib/keeper_attacks.py" stranger "$socket" "$dir/tight" || return
    # Even if the socket lets them connect.
    chmod 755 "$WORK" "$dir" "$dir/run" && chmod 666 "$socket" || return
    python3 "$here/../lib/keeper_attacks.py" stranger "$socket" "$dir/tight"; answer=$?
    chmod 600 "$socket"
    [ $answer = 0 ] && grep -q "a process of another user was refused" "$dir/keeper.log" &&
        holds still && tight_answers
}
end_tight() {
    exec 8>&-
    kill "${workers[0]}"; wait "${workers[0]}" 2> /dev/null
    workers=()
    within 60 umount "$dir/tight" && wait "$tight" && tight= && umount "$dir/small" &&
        rm "$A/supervised/held"
}
# The keeper is killed, and another one begins: the mount goes on, without a successor.
killed_keeper() {
    serve > "$dir/log3" 2>&1 & local pid=$!
    workers=($pid)
    serves || return
    kill -9 "$keeper"; wait "$keeper" 2> /dev/null
    "$RIALTO" keeper "$socket" > "$dir/keeper2.log" 2>&1 & keeper=$!
    for _ in $(seq 100); do grep -q listening "$dir/keeper2.log" && break; sleep 0.1; done
    echo text > "$at/supervised/after" || return
    says "is mounted there already" 1 within 60 "$RIALTO" mount --keeper "$socket" \
        --dir "$dir/home2" "unix:$CELL/server.sock" "$at" || return
    kill -9 $pid; wait $pid 2> /dev/null
    says "run 'rialto umount $at' first" 1 serve_again || return
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" || return
    serve > "$dir/log3" 2>&1 & pid=$!
    workers=($pid)
    serves && [ "$(cat "$at/supervised/after")" = text ] && within 60 umount "$at" && wait $pid
}
serve_again() {
    within 60 "$RIALTO" mount --keeper "$socket" --dir "$home" "unix:$CELL/server.sock" "$at"
}
# The same with the keeper of --keep.
killed_own_keeper() {
    local parent daemon
    mount_kept() {
        within 60 "$RIALTO" mount --daemon --keep --dir "$home" "unix:$CELL/server.sock" "$at"
    }
    for end in umount kill; do
        mount_kept || return
        parent=$(head -n 1 "$home"/mounts/*.pid)
        daemon=$(tr -d ' ' < "/proc/$parent/task/$parent/children")
        kill -9 "$parent"
        until is_over "$parent"; do sleep 0.05; done
        echo "$end" > "$at/supervised/after" || return
        says "no keeper serves this mount" 1 "$RIALTO" mount --replace --dir "$home" "$at" || return
        if [ $end = umount ]; then
            within 60 umount "$at" || return
        else
            kill -9 "$daemon"
            until is_over "$daemon"; do sleep 0.05; done
            refused within 30 stat "$at/supervised" || return
            says "run 'rialto umount $at' first" 1 mount_kept || return
            within 60 "$RIALTO" umount --lazy --dir "$home" "$at" || return
        fi
        within 60 tail --pid="$daemon" -f /dev/null
        [ "$(cat "$A/supervised/after")" = $end ] || return
    done
    mount_kept && [ "$(cat "$at/supervised/after")" = kill ] && within 60 umount "$at"
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
check "of six processes for one place one has it" six_at_once
check "a mount with its records on a small disk" begin_tight
for bytes in 0 4096 8192 16384; do
    check "a disk that is full but for $bytes bytes loses no mount" full_disk $bytes
done
check "nor does a file that cannot be written" blocked_facts
check "nor do records of another version" other_version
check "other users are refused" refuses_strangers
check "it unmounts" end_tight
check "a mount goes on when its keeper is killed" killed_keeper
workers=()
check "and when its own keeper is" killed_own_keeper
check "a mount goes on when its keeper ends" goes_on_without
workers=()
check "volumes below stay in a --flat mount" flat
"$RIALTO" fs rmmount "$A/supervised/below" > /dev/null
rm -rf "$A/supervised"
finish
