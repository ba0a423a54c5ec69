#!/bin/bash
# A disk fails below a partition of one server: the partition gets no new volumes, which the server
# remembers when it starts again, and its volumes leave by themselves, because the server's
# configuration says so. An administrator trusts the repaired disk again.
. "$(dirname "$0")/../lib/real.sh"
needs_root
base=$WORK/unwell
A=$base/a B=$base/b disk=$base/disk tree=$base/tree other=$base/other
mkdir -p "$disk" "$tree" "$other"
truncate -s 256M "$base/image" && mkfs.ext4 -q -F -m 0 "$base/image" &&
    mount -o loop "$base/image" "$disk" || { skip "no loop device to be had"; finish; }
vos() { within 90 "$RIALTO" vos --dir "$A" "$@"; }
cleanup() {
    for at in "$tree" "$other"; do
        within 30 "$RIALTO" umount --lazy --dir "$A" "$at" > /dev/null 2>&1; done
    for dir in "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done
    umount --lazy "$disk" 2> /dev/null
}
trap cleanup EXIT
check "the first server" within 90 "$RIALTO" up --no-mount --dir "$A" --cell unwell.test \
    --listen 127.0.0.1:0
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
check "a second joins it" within 90 "$RIALTO" up --dir "$B" --join "$address" \
    --keys "$A/keys" --server two
check "which stops" within 60 "$RIALTO" down --dir "$B"
sed -i "s|^partition = .*|partitions = [\"vicep\", \"$disk/vicepb\"]|" "$B/cell.toml"
printf '\n[health]\nevacuate = "failing"\n' >> "$B/cell.toml"
starts() { within 90 "$RIALTO" server --daemon --dir "$B"; }
check "and has a second disk" starts

for name in work other idle; do
    check "the volume $name there" vos create two vicepb "$name"; done
mounted() {
    within 60 "$RIALTO" mount --daemon --dir "$A" --volume "$1" "unix:$A/server.sock" "$2"
}
check "one is mounted" mounted work "$tree"
check "and another" mounted other "$other"
for i in $(seq 50); do echo "$i" > "$tree/file-$i"; echo "$i" > "$other/file-$i"; done
head -c 3000000 /dev/urandom > "$tree/large"
sync "$tree"/* "$tree"
sums() { (cd "$tree" && sha256sum file-* large | sha256sum); }
before=$(sums)
# A plan by load moves one of the two used volumes, and leaves the idle one alone.
moves_a_used_one() {
    vos balance -by load -tolerance 1 -dryrun --json > "$base/plan" || return
    python3 - "$base/plan" << 'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
names = [one["volume"] for one in plan["moves"]]
assert "idle" not in names and {"work", "other"} & set(names), plan
assert all(one["uses"] > 50 for one in plan["moves"] if one["volume"] in ("work", "other")), plan
PY
}
check "uses are counted by volume" moves_a_used_one
check "and a plan by load says so" says "of all uses" 0 vos balance -by load -dryrun
check "a disk that is well is trusted already" says "is well" 0 vos trustpart two vicepb

# As ext4 does by itself where it meets an error that it cannot go on with.
mount -o remount,abort "$disk"
echo lost > "$tree/lost" 2> /dev/null
within 60 sync -f "$tree" 2> /dev/null
is_failing() {
    local _
    for _ in $(seq 100); do
        vos partinfo two vicepb | grep -q "its disk is failing since" && return
        sleep 0.1
    done
    vos partinfo two vicepb
    return 1
}
check "the failing disk is reported" is_failing
check "by doctor too" says "takes no more changes" 1 within 60 "$RIALTO" doctor --dir "$B"
check "it gets no new volume" says "is failing" 1 vos create two vicepb another
check "it is not trusted before it takes changes" says "a new start of the server" 1 \
    vos trustpart two vicepb

kill -9 "$(head -n 1 "$B/server.pid")"
repaired() {
    umount "$disk" && { e2fsck -fy "$base/image" || [ $? -eq 1 ]; } &&
        mount -o loop "$base/image" "$disk"
}
until repaired > "$base/repair" 2>&1; do
    [ $SECONDS -lt 120 ] || { cat "$base/repair"; fail "the disk is repaired"; finish; }
    sleep 0.2
done
check "the server starts with the repaired disk" starts
has_left() { # the volume is somewhere else
    local _
    for _ in $(seq 300); do
        vos listvldb -name "$1" | grep -q "partition /vicepb RW" || return 0
        sleep 0.1
    done
    vos listvldb -name "$1"
    grep PH- "$B/logs/server.log"
    return 1
}
check "the volume in use leaves by itself" has_left work
check "and the idle one" has_left idle
same() { [ "$(sums)" = "$before" ]; }
check "what was written is there" same
check "and work goes on" sh -c "echo more > '$tree/more' && sync '$tree/more'"
check "the log says why" grep -q "PH-4: the volumes of the partition leave" "$B/logs/server.log"
check "after the start the disk counts as failing" says "its disk is failing" 0 \
    vos partinfo two vicepb
check "and gets no new volume" says "vos trustpart" 1 vos create two vicepb another
check "a dry run trusts nothing" says "would be trusted" 0 vos trustpart two vicepb -dryrun
check "an administrator trusts it" says "gets new volumes again; its disk was failing" 0 \
    vos trustpart two vicepb
check "it gets a volume" vos create two vicepb another
check "the server stops" within 60 "$RIALTO" down --dir "$B"
check "and starts" starts
check "the trust is remembered" refused says "failing" 0 vos partinfo two vicepb
stays() { sleep 4; vos listvldb -name another | grep -q "partition /vicepb RW"; }
check "and the volume stays" stays
finish
