#!/bin/bash
# A full disk and a used-up quota arrive at the caller, in write, fsync or close, and never nowhere: what was reported as
# written is there, and once there is room, work goes on. As root the partition lies on a small disk of its own.
. "$(dirname "$0")/../lib/real.sh"
needs_cell

# Writes pieces until it fails, then closes; prints the error and how many bytes fsync or close said were written.
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
used() { "$RIALTO" status --dir "$CELL" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["usage"][sys.argv[1]])' "$1"; }

mkdir -p "$A/full"
check "quota of bytes is set" quota $(($(used used_bytes) + (40 << 20))) 0
check "EDQUOT arrives at the writer" fill "$A/full/large" EDQUOT
rm -f "$A/full/large"
check "after a removal there is room again" sh -c "head -c 10000000 /dev/urandom > '$A/full/again' && sync '$A/full/again'"
check "quota of files is set" quota 0 $(($(used used_files) + 50))
mkdir -p "$A/full/many"
check "EDQUOT arrives at the maker of files" many "$A/full/many" EDQUOT
check "quota is taken away" quota 0 0
check "and work goes on" sh -c "echo there > '$A/full/more' && [ \"\$(cat '$B/full/more')\" = there ]"
rm -rf "$A/full"

if [ "$(id -u)" != 0 ]; then note "a full disk: not run: only root can make a small one"; finish; fi
small=$WORK/small
mkdir -p "$small/disk" "$small/mnt"
stop_small() {
    within 120 "$RIALTO" down --lazy --dir "$small/disk/cell" > "$WORK/small-down.log" 2>&1
    umount "$small/disk" 2>/dev/null
}
trap stop_small EXIT
truncate -s 300M "$small/image" && mkfs.ext4 -q -F "$small/image" && mount -o loop "$small/image" "$small/disk" ||
    { note "a full disk: not run: no loop device to be had"; finish; }
check "a cell on a small disk" within 60 "$RIALTO" up --dir "$small/disk/cell" --at "$small/mnt"
echo "from before" > "$small/mnt/before" && sync "$small/mnt/before"
check "ENOSPC arrives at the writer" within 600 bash -c "$(declare -f fill); fill '$small/mnt/large' ENOSPC"
check "what was there before is there" grep -q "from before" "$small/mnt/before"
check "the server answers" within 60 "$RIALTO" status --dir "$small/disk/cell"
check "removing works on a full disk" rm "$small/mnt/large"
sleep 3
check "after a removal there is room again" within 120 \
    sh -c "head -c 20000000 /dev/urandom > '$small/mnt/again' && sync '$small/mnt/again'"
check "and the server starts again" within 120 sh -c \
    "'$RIALTO' down --dir '$small/disk/cell' && '$RIALTO' up --dir '$small/disk/cell' --at '$small/mnt' && grep -q before '$small/mnt/before'"
finish
