#!/bin/bash
# A mount with a keeper: its daemon is killed again and again, and the programs that have files open
# notice nothing but a pause.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ "$QUICK" = no ]; then kills=200 parts=(git sqlite build random)
else kills=6 parts=(sqlite); fi
here=$(cd "$(dirname "$0")" && pwd)
dir=$WORK/keeper at=$WORK/keeper/at home=$WORK/keeper/home stop=$WORK/keeper/stop
mkdir -p "$at" "$home"
address=$(tcp_address)
workers=()
cleanup() {
    touch "$stop"
    [ ${#workers[@]} -eq 0 ] || kill "${workers[@]}" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" > /dev/null 2>&1
}
trap cleanup EXIT
keeper() { head -n 1 "$home"/mounts/*.pid; }
daemon() { cat "/proc/$(keeper)/task/$(keeper)/children" 2> /dev/null; }
# Kills the daemon; the successor is another process, and serves.
kill_daemon() {
    local before; before=$(daemon)
    [ -n "${before// /}" ] || { echo "no daemon runs"; return 1; }
    kill -9 $before || return
    within 30 stat "$at" > /dev/null || { echo "nothing answers"; return 1; }
    # The kernel may have answered by itself, while the killed process was about to end.
    local now _
    for _ in $(seq 300); do
        now=$(daemon)
        [ -n "${now// /}" ] && [ "$now" != "$before" ] && return
        sleep 0.1
    done
    echo "the daemon is the same"
    return 1
}
kill_all() {
    local i
    for i in $(seq "$kills"); do
        sleep "$((RANDOM % 2)).$((RANDOM % 10))"
        kill_daemon || { echo "at kill $i"; return 1; }
    done
}
# What people do, on the kept mount instead of A, while its daemon is killed every second or so.
worked() { # worked PART
    local killer status
    while sleep "0.$((RANDOM % 10))" && sleep 0.7; do kill_daemon || break; done \
        > "$dir/kills" 2>&1 & killer=$!
    workers=($killer)
    A=$at PART=$1 bash "$here/$1.sh"
    status=$?
    kill -0 $killer || { echo "the daemon has no successor:"; cat "$dir/kills"; return 1; }
    kill $killer
    wait $killer 2> /dev/null
    return $status
}
kept() { # kept NAME SERVER: mounts, and kills its daemon under work
    local name=$1 load watcher
    mkdir "$A/keeper"
    check "$name: mount --keep" within 60 "$RIALTO" mount --daemon --keep --dir "$home" "$2" \
        "$at" || return
    rm -f "$stop" "$dir/witness"
    python3 "$here/../lib/open_files.py" "$at/keeper" "$stop" > "$dir/load" 2>&1 & load=$!
    within 3600 "$TOOLS/witness" run "$at/keeper" "$dir/witness" --seconds $((kills + 5)) \
        --seed "$RANDOM" > "$dir/witness.out" 2>&1 & watcher=$!
    workers=($load $watcher)
    for _ in $(seq 100); do [ -e "$A/keeper/lines" ] && break; sleep 0.1; done
    sleep 1
    timeout 3600 tail -f "$at/keeper/lines" > "$dir/tail" 2> /dev/null & workers+=($!)
    check "$name: the daemon is killed $kills times" kill_all
    check "$name: a lock is held all the time" fails lock_range "$B/keeper/locked"
    check "$name: rialto mount --replace" replaces
    touch "$stop"
    check "$name: no call failed, and all that was written is there" ends_well $load "$dir/load"
    check "$name: the witness saw no error" ends_well $watcher "$dir/witness.out"
    note "$(head -n 1 "$dir/load")"
    check "$name: nothing is lost, seen from another mount" within 300 "$TOOLS/witness" check \
        "$B/keeper" "$dir/witness"
    check "$name: tail -f saw each line" tail_saw_all
    kill "${workers[@]}" 2> /dev/null
    workers=()
    for part in "${parts[@]}"; do
        check "$name: $part, while the daemon is killed" worked "$part"
    done
    check "$name: it unmounts, and both processes end" unmounts
    rm -rf "$A/keeper"
}
fails() { ! "$@"; }
lock_range() { # lock_range FILE: the bytes that open_files.py has locked
    python3 -c 'import fcntl, sys; file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)' "$1"
}
ends_well() { within 120 tail --pid="$1" -f /dev/null; wait "$1" || { cat "$2"; return 1; }; }
replaces() {
    local before; before=$(daemon)
    within 60 "$RIALTO" mount --replace "$at" && [ "$(daemon)" != "$before" ]
}
tail_saw_all() {
    local i
    for i in $(seq 50); do
        [ "$(tail -n 1 "$dir/tail")" = "$(tail -n 1 "$B/keeper/lines")" ] && break
        sleep 0.1
    done
    # It began with the last lines that were there.
    tail -n "$(wc -l < "$dir/tail")" "$B/keeper/lines" | cmp - "$dir/tail"
}
unmounts() {
    local one two; one=$(keeper) two=$(daemon)
    within 60 umount "$at" || return
    for _ in $(seq 100); do is_over "$one" && is_over "$two" && return; sleep 0.1; done
    echo "process $one or $two is left"
    return 1
}

# In the foreground: the terminal's interrupt goes to the whole group.
interrupted() {
    local group
    setsid "$RIALTO" mount --keep --dir "$home" "unix:$CELL/server.sock" "$at" \
        > "$dir/foreground" 2>&1 & group=$!
    for _ in $(seq 100); do mountpoint --quiet "$at" && break; sleep 0.1; done
    echo written > "$at/interrupted" || return
    kill -INT -- "-$group"
    within 30 tail --pid="$group" -f /dev/null
    wait "$group" || { cat "$dir/foreground"; return 1; }
    ! mountpoint --quiet "$at" && grep -q written "$A/interrupted" && rm "$A/interrupted"
}

check "an interrupt unmounts in order" interrupted
kept "server on this machine" "unix:$CELL/server.sock"
kept "server over a network" "$address"
finish
