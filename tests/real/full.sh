#!/bin/bash
# A full disk and a used-up quota arrive at the caller, in write, fsync or close, and never nowhere:
# what was reported as written is there, and once there is room, work goes on. As root the partition
# lies on a small disk of its own.
. "$(dirname "$0")/../lib/real.sh"
needs_cell

# Writes pieces until it fails, then closes; prints the error and how many bytes fsync or close said
# were written.
fill() {
    python3 - "$@" << 'PY'
import errno, os, sys
path, expected = sys.argv[1], sys.argv[2]
fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
block, safe, found = os.urandom(1 << 20), 0, None
try:
    for number in range(4096):
        os.write(fd, block)
        if number % 8 == 7:
            os.fsync(fd)
            safe = (number + 1) << 20
except OSError as error:
    found = error
try:
    os.close(fd)
except OSError as error:
    found = found or error
assert found is not None, "4 GiB were taken without an error"
assert errno.errorcode[found.errno] == expected, found
with open(path, "rb") as there:
    for number in range(safe >> 20):
        assert there.read(1 << 20) == block, f"piece {number} was synced and is not there"
print(f"{expected} after {safe >> 20} MiB")
PY
}

many() { # many DIRECTORY ERROR: files until it fails
    python3 - "$@" << 'PY'
import errno, os, sys
try:
    for number in range(100000):
        with open(f"{sys.argv[1]}/file-{number}", "wb") as file:
            file.write(b"x" * 100)
            os.fsync(file.fileno())
except OSError as error:
    assert errno.errorcode[error.errno] == sys.argv[2], error
    sys.exit(0)
sys.exit("100,000 files were taken without an error")
PY
}

quota() { "$TOOLS/quota" "unix:$CELL/server.sock" "$@"; }
used() { "$RIALTO" status --dir "$CELL" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["usage"][sys.argv[1]])' "$1"; }

mkdir -p "$A/full"
check "quota of bytes is set" quota $(($(used used_bytes) + (40 << 20))) 0
check "EDQUOT arrives at the writer" fill "$A/full/large" EDQUOT
rm -f "$A/full/large"
check "after a removal there is room again" sh \
    -c "head -c 10000000 /dev/urandom > '$A/full/again' && sync '$A/full/again'"
check "quota of files is set" quota 0 $(($(used used_files) + 50))
mkdir -p "$A/full/many"
check "EDQUOT arrives at the maker of files" many "$A/full/many" EDQUOT
check "quota is taken away" quota 0 0
check "and work goes on" sh -c "echo there > '$A/full/more' &&
    [ \"\$(cat '$B/full/more')\" = there ]"
rm -rf "$A/full"

if [ "$(id -u)" != 0 ]; then skip "a full disk: only root can make a small one"; finish; fi
small=$WORK/small tree=$WORK/small/mnt disk=$WORK/small/disk cell=$WORK/small/disk/cell
mkdir -p "$disk" "$tree"
stop_small() {
    within 120 "$RIALTO" down --lazy --dir "$cell" > "$WORK/small-down.log" 2>&1
    within 60 "$RIALTO" umount --lazy --dir "$small/home" "$small/at" > /dev/null 2>&1
    umount "$disk" "$small/cache" 2>/dev/null
}
trap stop_small EXIT
[ "$QUICK" = yes ] && size=64M || size=256M
truncate -s $size "$small/image" && mkfs.ext4 -q -F -m 0 "$small/image" &&
    mount -o loop "$small/image" "$disk" ||
    { skip "a full disk: no loop device to be had"; finish; }
server() { head -n 1 "$cell/server.pid"; }
says_full() { # doctor ends with 1 and says so
    local said
    said=$(within 60 "$RIALTO" doctor --dir "$cell" 2>&1)
    [ $? -eq 1 ] && grep -q "disk full" <<< "$said" && return 0
    echo "$said"
    return 1
}
# Takes what is left on the disk itself, to the last byte, as another program would.
# More than once: the server may give room back meanwhile, by removing tables it has merged.
take_the_rest() {
    for _ in $(seq 50); do
        dd if=/dev/zero bs=1M of="$disk/others" oflag=append conv=notrunc 2> /dev/null
        dd if=/dev/zero bs=1k of="$disk/others-too" oflag=append conv=notrunc 2> /dev/null
        [ "$(df --output=avail "$disk" | tail -n 1)" -eq 0 ] && return
        sleep 0.2
    done
    return 1
}
give_back() { rm -f "$disk/others" "$disk/others-too"; }

# Names, attributes and bodies that go into the records, until it fails with ENOSPC; those before
# the last sync are written down.
metadata() { # metadata DIRECTORY LIST
    python3 - "$@" << 'PY'
import errno, os, sys, zlib
tree, synced = sys.argv[1], []
written = 0
def one(number):
    path = f"{tree}/dir-{number // 100}"
    if number % 100 == 0:
        os.mkdir(path)
    with open(f"{path}/file-{number}", "wb") as file:
        data = os.urandom(15996)
        file.write(data + zlib.crc32(data).to_bytes(4, "little"))
    os.symlink(f"file-{number}", f"{path}/link-{number}")
    os.setxattr(f"{path}/file-{number}", "user.number", str(number).encode() * 100)
try:
    for number in range(1000000):
        one(number)
        if number % 100 == 99:
            fd = os.open(tree, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
            written = number + 1
except OSError as error:
    assert error.errno == errno.ENOSPC, error
    open(sys.argv[2], "w").write(str(written))
    print(f"ENOSPC after {written} files")
    sys.exit(0)
sys.exit("a million files were taken without an error")
PY
}
whole() { # whole DIRECTORY LIST: what was synced is there
    python3 - "$@" << 'PY'
import os, sys, zlib
tree = sys.argv[1]
for number in range(int(open(sys.argv[2]).read())):
    path = f"{tree}/dir-{number // 100}"
    data = open(f"{path}/file-{number}", "rb").read()
    assert len(data) == 16000 and data[-4:] == zlib.crc32(data[:-4]).to_bytes(4, "little"), path
    assert os.readlink(f"{path}/link-{number}") == f"file-{number}"
    assert os.getxattr(f"{path}/file-{number}", "user.number") == str(number).encode() * 100
PY
}
# A change that must succeed once there is room; the room of removed records comes back in the
# background.
in_time() { local _; for _ in $(seq 60); do "$@" 2> /dev/null && return 0; sleep 1; done; "$@"; }
export -f fill metadata whole in_time

# The cache of a client without a cell.
mkdir -p "$small/cache" "$small/at"
mount -t tmpfs -o size=4m none "$small/cache"
check "a mount with its cache on a small disk" within 60 "$RIALTO" mount --daemon \
    --dir "$small/home" --cache-dir "$small/cache/mount" "$(tcp_address)" "$small/at"
dd if=/dev/zero bs=64k of="$small/cache/others" 2> /dev/null
check "doctor says that it is full" says "nothing more is cached" 0 within 60 "$RIALTO" doctor \
    --dir "$small/home"
check "the mount goes on" sh -c "echo there > '$small/at/cached' && grep -q there '$A/cached'"
check "it is unmounted" within 60 "$RIALTO" umount --dir "$small/home" "$small/at"
rm "$A/cached"

check "a cell on a small disk" within 60 "$RIALTO" up --dir "$cell" --at "$tree"
pid=$(server)
echo "from before" > "$tree/before" && sync "$tree/before"
check "ENOSPC arrives at the writer" within 600 bash -c "fill '$tree/large' ENOSPC"
check "doctor says that the disk is full" says_full
check "removing works on a full disk" rm "$tree/large"
check "after a removal there is room again" within 120 bash -c \
    "in_time sh -c \"head -c 10000000 /dev/urandom > '$tree/again' && sync '$tree/again'\""
mkdir "$tree/meta"
check "small files, links and attributes: ENOSPC arrives at their maker" within 900 bash \
    -c "metadata '$tree/meta' '$WORK/synced'"
note "$(cat "$WORK/synced") of them were synced"
check "what was synced is whole" within 300 bash -c "whole '$tree/meta' '$WORK/synced'"
check "others take the rest, to the last byte" take_the_rest
check "a change is refused with ENOSPC" bash \
    -c "! touch '$tree/refused' 2> '$WORK/said' && grep -q 'No space left' '$WORK/said'"
check "doctor says that too" says_full
check "what is there is still read" within 300 bash \
    -c "whole '$tree/meta' '$WORK/synced' && grep -q before '$tree/before'"
for number in $(seq 200); do
    rm -f "$tree/again"; echo more > "$tree/before-$number"; done 2> /dev/null
[ "$(server)" = "$pid" ] && kill -0 "$pid" && pass "the server lives" || fail "the server died"
give_back
check "with room again removals work, without a new start" within 120 bash \
    -c "in_time rm -rf '$tree/meta/dir-0'"
mkdir -p "$tree/meta/dir-0"
check "the rest is whole after a new start" within 240 sh -c \
    "'$RIALTO' down --dir '$cell' && '$RIALTO' up --dir '$cell' --at '$tree' &&
        grep -q before '$tree/before'"
pid=$(server)
check "all of it can be removed" within 600 bash -c "in_time rm -rf '$tree/meta'"
check "and its room is used again" within 300 bash -c \
    "mkdir '$tree/meta' && sed -i 's/.*/0/' '$WORK/synced' &&
        in_time sh -c \"head -c 10000000 /dev/urandom > '$tree/again' && sync '$tree/again'\""
rm -f "$tree/again"
# All that came back so far may be less than that: then the rest is waited for.
small_files() { rm -rf "$tree/meta" && mkdir "$tree/meta" && metadata "$tree/meta" "$WORK/synced" &&
    [ "$(cat "$WORK/synced")" -ge 300 ]; }
export tree WORK
export -f small_files
check "by small files too" within 900 bash -c "in_time small_files"
check "which are whole" within 300 bash -c "whole '$tree/meta' '$WORK/synced'"
[ "$(server)" = "$pid" ] && kill -0 "$pid" && pass "the server lived through all of it" ||
    fail "the server died"
check "down" within 300 "$RIALTO" down --dir "$cell"
check "the scrub says so" within 300 sh -c \
    "'$RIALTO' doctor --scrub --dir '$cell' 2>&1 | grep -q 'nothing is damaged'"
finish
