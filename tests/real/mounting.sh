#!/bin/bash
# A mount that every tool takes for a disk: mount(8), umount(8), sync, fstab, and a server that is
# away. On mount points of its own, below the cell's two mounts' directory.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ "$QUICK" = yes ]; then cycles=30; else cycles=1000; fi
dir=$WORK/mounting at=$WORK/mounting/at home=$WORK/mounting/home
mkdir -p "$at" "$home"
address=$(tcp_address)
cleanup() {
    [ -e "$CELL/server.pid" ] && kill -CONT "$(server_pid)" 2> /dev/null
    touch "$dir/stop"
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" > /dev/null 2>&1
}
trap cleanup EXIT
over_network() { within 60 "$RIALTO" mount --daemon --dir "$home" "$@" "$address" "$at"; }
ends() { until is_over "$1"; do sleep 0.02; done; }
pid_at() { head -n 1 "$home"/mounts/*.pid; }

# umount(8) returns before the process of the mount has ended; the next mount waits for it.
cycle() {
    local i
    for i in $(seq 1 "$cycles"); do
        over_network || { echo "mount $i failed"; return 1; }
        echo "$i" > "$at/mounting.cycle" && ls -lR "$at" > /dev/null
        within 60 umount "$at" || { echo "umount $i failed"; return 1; }
    done
}
while [ ! -e "$dir/stop" ]; do
    dd if=/dev/zero of="$A/mounting.load" bs=1M count=20 status=none
    sha256sum "$A/mounting.load" > /dev/null
done & load=$!
check "$cycles times umount and mount, under load" cycle
touch "$dir/stop" && wait $load
rm "$dir/stop" "$A/mounting.load"
check "what the last one wrote is there" test "$(cat "$A/mounting.cycle")" = "$cycles"
rm "$A/mounting.cycle"
finish
