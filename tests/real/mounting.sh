#!/bin/bash
# A mount that every tool takes for a disk: mount(8), umount(8), fstab, remount, sync, and a server
# that is away. In a mount name space of its own, where mount.rialto is installed, on mount points
# of its own.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ -z "${MOUNTING_INSIDE:-}" ]; then
    MOUNTING_OUTSIDE=$PPID MOUNTING_INSIDE=yes exec unshare --mount --propagation private bash "$0"
fi
if [ "$QUICK" = yes ]; then cycles=30; else cycles=1000; fi
dir=$WORK/mounting at=$WORK/mounting/at home=$WORK/mounting/home
mkdir -p "$at" "$home" "$dir"/{upper,work}
address=$(tcp_address)
server=$(server_pid)
cleanup() {
    kill -CONT "$server" 2> /dev/null
    touch "$dir/stop"
    within 60 "$RIALTO" umount --lazy --dir "$home" "$at" > /dev/null 2>&1
    [ -z "${sleeper:-}" ] || kill "$sleeper" 2> /dev/null || true
}
trap cleanup EXIT
over_network() { within 60 "$RIALTO" mount --daemon --dir "$home" "$@" "$address" "$at"; }
pid_at() { head -n 1 "$home"/mounts/*.pid; }
# Ends within so many milliseconds, the process.
ends_within() {
    local tries=$(($1 / 20))
    until is_over "$2"; do
        [ $((tries--)) -gt 0 ] || { echo "process $2 is there"; return 1; }
        sleep 0.02
    done
}
# Through the other mount: volumes below it are mounted where its process is.
outside() { within 60 nsenter --mount="/proc/$MOUNTING_OUTSIDE/ns/mnt" "$@"; }
# takes MILLISECONDS COMMAND...: the command succeeds within that time.
takes() {
    local most=$1 began took
    shift
    began=$(date +%s%N)
    within 30 "$@" || return
    took=$((($(date +%s%N) - began) / 1000000))
    [ $took -le "$most" ] || { echo "took $took ms"; return 1; }
}
options() { findmnt --noheadings --raw --output OPTIONS --mountpoint "$1" | tail -n 1; }
has_option() { case ,$(options "$1"), in *,"$2",*) ;; *) options "$1"; return 1 ;; esac; }
is_read_only() { says "Read-only file system" 1 touch "$1/mounting.new"; }

# umount(8) returns before the process of the mount has ended; the next mount waits for it.
cycle() {
    local i
    for i in $(seq 1 "$cycles"); do
        over_network || { echo "mount $i failed"; return 1; }
        echo "$i" > "$at/mounting.cycle" && ls -l "$at" > /dev/null
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

# As 'make install' does it, but only in this name space.
mount -t overlay -o "lowerdir=/usr/sbin,upperdir=$dir/upper,workdir=$dir/work" overlay /usr/sbin
for helper in mount.rialto mount.fuse.rialto umount.rialto umount.fuse.rialto; do
    ln -sf "$RIALTO" "/usr/sbin/$helper"
done
mkdir -p "$A/mounting"
check "a volume below" sh -c "'$RIALTO' vos create localhost vicep mounting --dir '$CELL' &&
    '$RIALTO' fs mkmount '$A/mounting/below' mounting"
echo old > "$A/mounting/file"
outside cp /bin/true "$A/mounting/below/program"
outside cp "$A/mounting/file" "$A/mounting/below/file"

check "mount -t rialto" within 60 mount -t rialto "$address" "$at" -o \
    "dir=$home,ro,noexec,noatime,nosymfollow,_netdev,nofail,x-systemd.automount,cache-size=100MiB"
check "shows the source that it was given" test \
    "$(findmnt --noheadings --nofsroot --output SOURCE,FSTYPE --raw "$at")" = \
    "$address fuse.rialto"
check "reads" grep -q old "$at/mounting/below/file"
for option in ro noexec noatime nosymfollow nosuid nodev; do
    check "$option" has_option "$at" $option
    check "$option in the volume below" has_option "$at/mounting/below" $option
done
check "refuses changes" is_read_only "$at/mounting"
check "in the volume below too" is_read_only "$at/mounting/below"
check "and to run programs there" says "Permission denied" 126 sh -c "'$at/mounting/below/program'"
check "is unmounted by umount" within 30 umount --recursive "$at"
check "an unknown option is named" says "'nosiud'" 1 within 60 mount -t rialto "$address" "$at" -o \
    "dir=$home,nosiud"
check "and nothing is mounted" refused mountpoint -q "$at"
check "a flat one refuses changes too" within 60 mount -t rialto "$address" "$at" -o \
    "dir=$home,ro,flat"
check "at its root" is_read_only "$at/mounting"
check "and in the volume below" is_read_only "$at/mounting/below"
check "and is unmounted" within 30 umount "$at"

# /etc/fstab, mount -a and remount.
echo "$address $at rialto dir=$home,_netdev,nofail 0 0" > "$dir/fstab"
mount --bind "$dir/fstab" /etc/fstab
check "mount -a" within 60 mount -a
check "once more, and it is there already" within 60 mount -a
check "one mount of it" test "$(grep -c " $at " /proc/self/mountinfo)" -eq 1
echo new > "$at/mounting/below/file"
exec 7>> "$at/mounting/below/file"
check "remount,ro of what is written is refused" says "open for writing" 1 within 60 mount -o \
    remount,ro "$at"
exec 7>&-
for i in $(seq 1 50); do echo "$i" > "$at/mounting/pending.$i"; done
check "remount,ro" within 60 mount -o remount,ro "$at"
check "writes pending changes out" test "$(cat "$A"/mounting/pending.* | wc -l)" -eq 50
check "shows ro" has_option "$at" ro
check "refuses changes then" is_read_only "$at/mounting"
check "and in the volume below" is_read_only "$at/mounting/below"
check "a volume that is entered later is read-only" sh -c "
    '$RIALTO' vos create localhost vicep mounting.later --dir '$CELL' &&
    '$RIALTO' fs mkmount '$A/mounting/later' mounting.later"
check "as the others are" is_read_only "$at/mounting/later"
check "remount,rw" within 60 mount -o remount,rw "$at"
for place in mounting mounting/below mounting/later; do
    check "lets $place be written" sh -c "echo again > '$at/$place/file'"
done
check "umount" within 30 umount --recursive "$at"
check "mount by its place alone" within 60 mount "$at"

# In use.
mkdir -p "$at/mounting/dir"
(cd "$at/mounting/dir" && exec sleep 600) & sleeper=$!
until [ "$(readlink "/proc/$sleeper/cwd")" = "$at/mounting/dir" ]; do sleep 0.02; done
check "umount of a busy place says so, with 32" says "busy" 32 within 30 umount --internal-only \
    "$at"
check "so does rialto umount, with the user" says \
    "sleep (pid $sleeper, user root) works in $at/mounting/dir" 32 within 30 "$RIALTO" umount "$at"
check "and umount with the helper" says "sleep (pid $sleeper" 32 within 30 umount "$at"
kill "$sleeper"; wait "$sleeper" 2> /dev/null

# The units that are shipped, with this program.
units_are_right() {
    mkdir "$dir/units"
    cp "$(dirname "$0")"/../../packaging/systemd/* "$dir/units"
    sed -i "s|/usr/local/bin/rialto|$RIALTO|; s/^User=.*/User=root/; s/^Group=.*//
        s|/usr/local/libexec/rialto|$(realpath "$(dirname "$0")/../../packaging")|" \
        "$dir"/units/*.service
    within 60 systemd-analyze verify --man=no "$dir"/units/*
}
if command -v systemd-analyze > /dev/null; then
    check "systemd accepts the units" units_are_right
else
    skip "systemd-analyze is not there to verify the units"
fi

# Another mount name space has the tree too, as a container may: the unmount here does not wait.
unshare --mount --propagation private sleep 600 & sleeper=$!
has_it() {
    grep -q " $at " "/proc/$sleeper/mountinfo" && [ "$(cat "/proc/$sleeper/comm")" = sleep ]
}
until has_it; do sleep 0.02; done
sync "$at/mounting"
pid=$(pid_at)
check "umount says that it is mounted elsewhere" says \
    "process $sleeper (sleep) has it in another mount name space" 0 within 30 umount "$at"
check "it is unmounted here" refused mountpoint -q "$at"
check "and served there" within 10 nsenter --target "$sleeper" --mount ls "$at/mounting"
kill "$sleeper"; wait "$sleeper" 2> /dev/null
check "its process ends with that" ends_within 5000 "$pid"
check "mounted again" within 60 mount "$at"

# With nothing unsaved, nothing waits for a server.
sync "$at/mounting" "$at/mounting/below/file"
pid=$(pid_at)
kill -STOP "$server"
check "sync -f, while the server is stopped" takes 1000 sync -f "$at/mounting"
check "umount" takes 1500 umount --recursive "$at"
check "and its process has ended" ends_within 1000 "$pid"
kill -CONT "$server"

# With unsaved changes umount tells what waits for which server, and can be interrupted.
unsaved() {
    within 60 mount "$at" && pid=$(pid_at) || return
    mkdir -p "$at/mounting/$1" && for i in 1 2 3; do echo $i > "$at/mounting/$1/$i"; done
    kill -STOP "$server"
    within 10 sh -c "echo late > '$at/mounting/$1/late'"
}
check "changes while the server is stopped" unsaved one
check "rialto umount tells what waits" says "$address: volume root.cell, " 124 timeout 4 "$RIALTO" \
    umount "$at"
check "the mount is gone" refused mountpoint -q "$at"
check "its process waits" refused is_over "$pid"
kill -CONT "$server"
check "and ends when the server goes on" ends_within 30000 "$pid"
check "nothing is lost" grep -q late "$A/mounting/one/late"

# umount -f gives up, and lists what is lost.
check "more changes" unsaved two
check "umount -f lists what is lost" says "no server has confirmed" 1 within 30 \
    umount -f "$at"
check "its process has ended" ends_within 100 "$pid"
kill -CONT "$server"
check "the log has it too" grep -q "changes were given up" "$home"/logs/*.log
check "it can be mounted again" within 60 mount "$at"
check "what was confirmed is there" grep -q 3 "$at/mounting/two/3"
check "and unmounted" within 30 umount "$at"

# A soft mount: calls end with errors while the server is away.
check "a soft mount" over_network --soft 2
pid=$(pid_at)
cat > "$dir/soft.py" << 'END'
"""Opens a file, and when it is told to, writes it and looks at a name: shows the errors."""
import errno, os, sys, time
path, go = sys.argv[1:]
file = os.open(path, os.O_RDWR)
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.02)
for what in (lambda: os.mkdir(path + ".dir"), lambda: os.fsync(file)):
    os.pwrite(file, b"soft", 0)
    try:
        what()
        print("none", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
END
python3 "$dir/soft.py" "$at/mounting/file" "$dir/go" > "$dir/soft.log" & sleeper=$!
until grep -q ready "$dir/soft.log"; do sleep 0.02; done
kill -STOP "$server"
touch "$dir/go"
wait $sleeper
# The outcome of a change that was sent is unknown; one that was not has timed out.
check "a call ends with an error" grep -qxE "ETIMEDOUT|EIO" <(sed -n 2p "$dir/soft.log")
check "so does a write" grep -qx EIO <(sed -n 3p "$dir/soft.log")
within 30 "$RIALTO" umount --dir "$home" "$at"
check "umount gives up after that time" ends_within 1000 "$pid"
kill -CONT "$server"
check "the cell goes on" grep -q late "$A/mounting/one/late"
finish
