#!/bin/bash
# Volumes as administrators use them: a real tree goes into a volume of its own, is sealed while
# people work in it, changed, compared with what was sealed byte for byte, over a killed server too,
# and removed; and what must be refused is refused with what to do.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
at=$WORK/volumes home=$WORK/volumes/home before=$WORK/volumes/before
source=$(cd "$(dirname "$0")/../.." && pwd)/crates
mkdir -p "$home" "$before" "$before.open"
# A mount keeps its cache and records apart from the cell's own.
local_dir=$at/local
trap 'for one in "$home" "$before" "$before.open"
    do within 60 "$RIALTO" umount --lazy --dir "$local_dir" "$one" > /dev/null 2>&1; done' EXIT

vos() { within 120 "$RIALTO" vos "$@" --dir "$CELL"; }
mount_volume() {
    within 60 "$RIALTO" mount --daemon --dir "$local_dir" \
        --volume "$1" "unix:$CELL/server.sock" "$2"; }
umount_volume() { within 60 "$RIALTO" umount --dir "$local_dir" "$1"; }
field() { vos examine "$1" --json |
    python3 -c "import json, sys; print(json.load(sys.stdin)[sys.argv[1]])" "$2"; }
# Every name, mode, owner, size, time and byte below a directory.
picture() {
    (cd "$1" && find . -printf '%p %y %m %U %G %n %l %T@ ' \( -type f -printf '%s' -o -true \) \
        -printf '\n' | sort &&
        find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

check "a volume" says "created on partition /vicep" 0 vos create real.home -maxquota 2G
check "is listed" says "real.home" 0 vos listvol
check "by number too" says "$(field real.home id)" 0 vos listvol -fast
check "and in the list of places" says "RW Site" 0 vos listvldb -name real.home
check "its quota is what was asked for" test "$(field real.home quota_bytes)" = $((2 << 30))
check "it is mounted" mount_volume real.home "$home"
check "df shows its quota" test "$(df -B1 --output=size "$home" | tail -n 1)" -eq $((2 << 30))
check "a tree goes in" cp -a "$source" "$home/tree"
head -c 20000000 /dev/urandom > "$home/large"
mkdir "$home/many" && for i in $(seq 200); do echo "$i" > "$home/many/$i"; done

# Nothing is synced: what the mount has answered and the server has not heard of must be in the
# snapshot.
check "a snapshot under a mount that has a directory to itself" vos snapshot create real.home before
picture "$home" > "$at/sealed"
check "it is mounted" mount_volume real.home.snapshot.before "$before"
check "as read-only" grep -q " $before .* ro," /proc/self/mountinfo
check "it is the tree, byte for byte" diff "$at/sealed" <(picture "$before")
check "nothing is made in it" says "Read-only file system" 1 touch "$before/new"
check "nothing is changed in it" says "Read-only file system" 2 sh -c "echo x > '$before/large'"
check "its bytes are not the head's to pay" test "$(field real.home.snapshot.before used_bytes)" \
    -gt 20000000

printf 'CHANGED' | dd of="$home/large" bs=1 seek=9000000 conv=notrunc status=none
truncate -s 100 "$home/many/7"; rm -r "$home/tree/types"; mv "$home/tree/vice" "$home/tree/moved"; \
    echo later > "$home/later"
ln -f "$home/many/1" "$home/many/2"; chmod 700 "$home/tree"; find "$home/tree/store" -type f \
    -exec sh -c 'echo more >> "$1"' _ {} \;
check "the head changes" refused diff "$at/sealed" <(picture "$home")
check "the snapshot does not" diff "$at/sealed" <(picture "$before")
umount_volume "$before"
check "a second one" vos snapshot create real.home after
check "a backup" says "Created backup volume for real.home" 0 vos backup real.home
check "and one that takes its place" says "Created backup volume for real.home" 0 vos backup \
    -id real.home
check "there is one backup" test "$(vos listvol --json | grep -c '"kind":"BK"')" = 1
picture "$home" > "$at/head"
kill_server; check "the server is killed and starts again" start_server
check "the snapshot is mounted again" mount_volume real.home.snapshot.before "$before"
check "and is what it was" diff "$at/sealed" <(picture "$before")
check "so is the head" diff "$at/head" <(picture "$home")
check ".snapshots has them" test "$(ls "$home/.snapshots" | tr '\n' ' ')" = "after before "
check "and no listing has it" refused sh -c "ls -A '$home' | grep -q snapshots"
check "one of them, byte for byte" diff "$at/sealed" <(picture "$home/.snapshots/before")
check "is read-only" says "Read-only file system" 1 touch "$home/.snapshots/before/new"
check "nothing is made beside them" says "Read-only file system" 1 mkdir "$home/.snapshots/new"
check "what they are is seen" says "real.home.snapshot.after" 0 "$RIALTO" fs lsmount \
    "$home/.snapshots/after"
check "both snapshots are listed" test "$(vos snapshot list real.home | wc -l)" = 2

# A file of more than a mebibyte is written by the kernel itself.
exec 7<> "$home/large"
printf 'KERNEL' >&7
picture "$home" > "$at/open"
check "a snapshot while a file is open for writing" vos snapshot create real.home open
printf 'later' >&7
exec 7>&-
check "it is mounted" mount_volume real.home.snapshot.open "$before.open"
check "it has what was written by then, and nothing later" diff "$at/open" <(picture "$before.open")
umount_volume "$before.open"
picture "$home" > "$at/head"
check "a snapshot once it is closed" vos snapshot create real.home closed

check "a snapshot is removed" says "Removed snapshot" 0 vos snapshot remove real.home before
check "who has it mounted is told" refused ls "$before/tree"
umount_volume "$before"
check "the others stay" says "real.home.snapshot.after" 0 vos snapshot list real.home
check "the head stays" diff "$at/head" <(picture "$home")

check "a quota that is used up is refused" sh \
    -c "'$RIALTO' vos setfields real.home -maxquota 1000 --dir '$CELL' &&
        ! dd if=/dev/zero of='$home/more' bs=1M count=30 conv=fsync 2> /dev/null"
vos setfields real.home -maxquota 0 && rm -f "$home/more"
check "a volume is taken off" vos offline real.home
check "and nobody can use it" refused cat "$home/later"
check "examine says so" says "Off-line" 0 vos examine real.home
check "it is brought back" vos online real.home
check "with all that it had" grep -q later "$home/later"
check "it is renamed" says "Renamed volume real.home to real.work" 0 vos rename real.home real.work
check "with its backup" says "real.work.backup" 0 vos listvol
check "the mount goes on" grep -q later "$home/later"
check "reads are not recorded" says "Read times  off" 0 vos examine real.work
check "until that is asked for" vos setfields real.work -readtimes on
check "as examine shows" says "Read times  on" 0 vos examine real.work
check "and JSON" test "$(field real.work read_times)" = True
check "and not longer" vos setfields real.work -readtimes off
check "as examine shows, too" says "Read times  off" 0 vos examine real.work
check "and JSON, too" test "$(field real.work read_times)" = False
check "clients of AFS are refused" vos setfields real.work -afs off
check "as JSON shows" test "$(field real.work afs)" = False
check "what is not asked for stays" says "Read times  off" 0 vos examine real.work
check "and they are served again" vos setfields real.work -afs on
check "as JSON shows, too" test "$(field real.work afs)" = True

# Dumps: what goes out comes in again, byte for byte, under another name, through a pipe too; and
# nothing else comes in.
picture "$home" > "$at/dumped"
check "a dump" says "Dumped volume real.work" 0 vos dump real.work -file "$at/work.dump"
check "leaves no snapshot behind" refused vos examine real.work.dumping
check "and one of what was sealed" vos dump real.home.snapshot.after -file "$at/after.dump"
check "of what changed since, little" vos dump real.work --since real.home.snapshot.after \
    -file "$at/little.dump"
check "that is less" test "$(stat -c %s "$at/little.dump")" -lt \
    $(($(stat -c %s "$at/work.dump") / 10))
check "it goes nowhere alone" says "overwrite incremental" 1 vos restore -name real.again \
    -file "$at/little.dump"
head -c 1000000 "$at/work.dump" > "$at/cut.dump"
check "a dump that is cut off" says "cut off" 1 vos restore -name real.again -file "$at/cut.dump"
{ head -c 700000 "$at/work.dump"; printf XXXX; tail -c +700005 "$at/work.dump"; } > "$at/bad.dump"
check "one that is damaged" says "damaged" 1 vos restore -name real.again -file "$at/bad.dump"
printf '\001\263\241\023\042\000\000\000\001v\000\000\000\001' > "$at/afs.dump"
check "one of AFS without its end" says "the dump ends too early" 1 vos restore \
    -name real.again -file "$at/afs.dump"
check "a volume that is there" says "a volume of that name" 1 vos restore -name real.work \
    -file "$at/work.dump"
check "nothing of them is there" refused vos examine real.again
check "a restored volume" says "Restored volume real.again" 0 vos restore -name real.again \
    -file "$at/work.dump"
check "it is mounted" mount_volume real.again "$before"
check "it is the tree, byte for byte" diff "$at/dumped" <(picture "$before")
check "with the quota" test "$(field real.again quota_bytes)" = "$(field real.work quota_bytes)"
check "it goes on by itself" sh -c "echo mine > '$before/mine' && test ! -e '$home/mine'"
check "an increment over what was changed is refused" says "it was changed since it was restored" \
    1 vos restore -name real.again -file "$at/little.dump" -overwrite incremental
check "a full dump is no increment" says "overwrite full" 1 vos restore -name real.again \
    -file "$at/work.dump" -overwrite incremental
check "all of it over the volume, which is mounted" says "Restored volume real.again" 0 vos \
    restore -name real.again -file "$at/work.dump" -overwrite full
check "it is the tree again, byte for byte" diff "$at/dumped" <(picture "$before")
umount_volume "$before"
check "it goes" vos remove real.again
# Over a volume that has nothing to do with the dump.
check "another volume" vos create real.other
check "it is mounted" mount_volume real.other "$before"
check "it has something" sh -c "mkdir '$before/own' && echo own > '$before/own/file'"
other=$(field real.other id)
check "and yesterday's" vos backup real.other
check "while that shows what it had, it is not overwritten" says "a dump of another volume" 1 vos \
    restore -name real.other -file "$at/work.dump" -overwrite full
check "and takes changes still" sh -c "grep -q own '$before/own/file' && echo fine > '$before/fine'"
check "without yesterday's" vos remove real.other.backup
check "it is" says "Restored volume real.other" 0 vos restore -name real.other \
    -file "$at/work.dump" -overwrite full -lastupdate dump
check "it is the tree, byte for byte, under the mount" diff "$at/dumped" <(picture "$before")
check "under its number" test "$(field real.other id)" = "$other"
check "and the date of the dump" test "$(field real.other updated)" = "$(field real.work updated)"
check "it goes on" sh -c "echo mine > '$before/mine' && grep -q mine '$before/mine'"
check "all of it is found by name" diff <(cd "$home" && find . | sort) <(cd "$before" && rm mine &&
    find . | sort)
umount_volume "$before"
check "it goes too" vos remove real.other
# A read-only volume, with none behind it that is written.
check "a read-only volume of a dump" says "Restored volume real.kept" 0 vos restore \
    -name real.kept -file "$at/after.dump" -readonly
check "is there alone" refused vos examine real.kept
check "it is mounted" mount_volume real.kept.readonly "$before"
check "takes no changes" says "Read-only file system" 1 touch "$before/mine"
umount_volume "$before"
check "once more it is refused" says "there is a read-only volume of that name" 1 vos restore \
    -name real.kept -file "$at/after.dump" -readonly
check "what was changed since comes over it" says "Restored volume real.kept" 0 vos restore \
    -name real.kept -file "$at/little.dump" -readonly -overwrite incremental
check "it is mounted again" mount_volume real.kept.readonly "$before"
check "it is what the other was, byte for byte" diff "$at/dumped" <(picture "$before")
umount_volume "$before"
check "it goes" says "deleted" 0 vos remove real.kept.readonly
check "through a pipe" sh -c "'$RIALTO' vos dump real.home.snapshot.after --dir '$CELL' |
    '$RIALTO' vos restore -name real.again --dir '$CELL'"
check "it is mounted" mount_volume real.again "$before"
check "what was changed since comes over it" says "Restored volume real.again" 0 vos restore \
    -name real.again -file "$at/little.dump" -overwrite incremental
check "it is what the other was, byte for byte" diff "$at/dumped" <(picture "$before")
check "once more there is nothing to bring" says "has what the dump brings" 1 vos restore \
    -name real.again -file "$at/little.dump" -overwrite i
check "it goes on" sh -c "echo mine > '$before/mine' && grep -q mine '$before/mine'"
umount_volume "$before"
check "a dump of what was changed since a time" says "starts from real.home.snapshot" 0 vos dump \
    real.work -time "$(date -u +'%Y-%m-%d %H:%M:%S')" -file "$at/since.dump"
check "or of everything, where nothing is that old" says "everything is dumped" 0 vos dump \
    real.work -time 2001-01-01 -file "$at/since.dump"
check "a time that is none" says "is no time" 1 vos dump real.work -time yesterday \
    -file "$at/since.dump"
check "a scrub finds nothing" says "nothing is damaged" 0 within 120 "$RIALTO" doctor --scrub \
    --json --dir "$CELL"
check "that goes too" vos remove real.again

# A writable clone: changed on both sides, and left alone by the end of the other.
picture "$home" > "$at/cloned"
used() { du -s --block-size=1 "$CELL" | cut -f 1; }
room=$(used)
check "a writable clone, but only said" says "would be done" 0 vos clone real.work \
    -toname real.clone -readwrite -dryrun
check "so it is not there" refused vos examine real.clone
check "a writable clone" says "Created read-write clone real.clone" 0 vos clone real.work \
    -toname real.clone -readwrite
check "of a tree of $(du -sm "$home" | cut -f 1) MiB in no room" test $(($(used) - room)) -lt \
    4000000
check "examine says of what" says "Clone of    $(field real.work id)" 0 vos examine real.clone
check "it has a place in the database" says "RW Site" 0 vos listvldb -name real.clone
check "a name that is taken" says "there is a volume of that name" 1 vos clone real.work \
    -toname real.clone -readwrite
check "it is mounted" mount_volume real.clone "$before"
check "it is the tree, byte for byte" diff "$at/cloned" <(picture "$before")
printf 'OURS' | dd of="$before/large" bs=1 seek=5000000 conv=notrunc status=none
rm -r "$before/tree/moved"; truncate -s 7 "$before/many/9"; echo ours \
    > "$before/ours"; mv "$before/many/10" "$before/ten"
sync -f "$before/ours"
check "what is done in it is not in the other" diff "$at/cloned" <(picture "$home")
picture "$before" > "$at/ours"
printf 'THEIRS' | dd of="$home/large" bs=1 seek=5000002 conv=notrunc status=none
find "$home/tree/store" -type f -exec sh -c 'echo theirs >> "$1"' _ {} \; ; rm "$home/many/11"
sync -f "$home/large"
check "nor the other way" diff "$at/ours" <(picture "$before")
check "a snapshot of it" vos snapshot create real.clone kept
check "a writable clone of a snapshot" says "real.old" 0 vos clone real.clone.snapshot.kept \
    -toname real.old -readwrite
umount_volume "$before"
check "the snapshot goes" vos snapshot remove real.clone kept
kill_server; check "the server is killed and starts again" start_server
check "it is mounted again" mount_volume real.clone "$before"
check "and is what it was" diff "$at/ours" <(picture "$before")
umount_volume "$before"
check "a dump of it" vos dump real.clone -file "$at/clone.dump"
check "stands alone" says "Restored volume real.again" 0 vos restore -name real.again \
    -file "$at/clone.dump"
check "it goes, and its own clone stays" vos remove real.clone
check "whole" mount_volume real.old "$before"
check "byte for byte" diff "$at/ours" <(picture "$before")
umount_volume "$before"
check "so does what was restored" mount_volume real.again "$before"
check "byte for byte" diff "$at/ours" <(picture "$before")
umount_volume "$before"
check "a scrub finds nothing" says "nothing is damaged" 0 within 120 "$RIALTO" doctor --scrub \
    --json --dir "$CELL"
check "one of them goes" vos remove real.again
picture "$home" > "$at/head"

check "no such volume" says "'rialto vos listvol' and" 1 vos examine no.such
check "a name twice" says "there is a volume of that name" 1 vos create real.work
check "a name that is a number" says "use letters" 1 vos create 12345
check "no such partition" says "name one of these" 1 vos create x -partition zz
check "no such server" says "name one of these" 1 vos create -server elsewhere -partition a -name x
check "a clone of a clone" says "read-only" 1 vos clone real.work.backup -toname x
check "the root of the tree" says "-force" 1 vos remove root.cell
check "words that are missing" says "required" 2 vos rename real.work
check "looking first changes nothing" says "would be done" 0 vos remove real.work -dryrun
check "so it is still there" vos examine real.work
check "a link named vos is the command" sh \
    -c "ln -sf '$RIALTO' '$at/vos' && '$at/vos' exa -id real.work -dir '$CELL' | grep -q real.work"
check "JSON of all" sh -c "'$RIALTO' vos listvol --json --dir '$CELL' |
    python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]'"

check "the volume is removed" says "deleted" 0 vos remove real.work
check "who has it mounted is told" refused cat "$home/later"
check "the clone of its clone stays, and is mounted" mount_volume real.old "$before"
check "byte for byte" diff "$at/ours" <(picture "$before")
umount_volume "$before"
check "and goes" vos remove real.old
check "its snapshot stays, and is mounted" mount_volume real.home.snapshot.after "$before"
check "its backup went with it" says "no such volume" 1 vos examine real.work.backup
check "whole" grep -q later "$before/later"
check "all of them go" sh -c "for one in after open closed; do
    '$RIALTO' vos remove real.home.snapshot.\$one --dir '$CELL' || exit 1; done"
check "and nothing is left of them" sh -c "! '$RIALTO' vos listvol --json --dir '$CELL' | grep real"
check "other volumes never noticed" sh -c \
    "echo fine > '$A/volumes-were-here' && grep -q fine '$B/volumes-were-here' &&
        rm '$A/volumes-were-here'"
check "what is left of their mounts goes" umount_volume "$home"
umount_volume "$before" > /dev/null 2>&1

# Two partitions of one server: a volume goes from one to the other and back while people use it,
# byte for byte, and one of them is emptied.
two=$at/two
trap 'within 60 "$RIALTO" umount --lazy --dir "$local_dir" "$home" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$two" > /dev/null 2>&1
    umount "$two/small" 2> /dev/null' EXIT
two() { within 120 "$RIALTO" vos "$@" --dir "$two"; }
check "a cell of its own" within 90 "$RIALTO" up --no-mount --dir "$two" --cell two.test
check "stops" within 60 "$RIALTO" down --dir "$two"
small=
mkdir -p "$two/small" && mount -t tmpfs -o size=64m none "$two/small" 2> /dev/null &&
    small=', "small/vicepc"'
sed -i "s|^partition = .*|server = \"both\"\npartitions = [\"vicep\", \"vicepb\"$small]|" \
    "$two/cell.toml"
check "and has two partitions now" within 90 "$RIALTO" server --daemon --dir "$two"
check "which are shown" test "$(two partinfo both --json | wc -l)" -ge 2
check "a volume on the first" says "created on partition /vicep" 0 two create both vicep there
check "it is mounted" within 60 "$RIALTO" mount --daemon --dir "$local_dir" \
    --volume there "unix:$two/server.sock" "$home"
check "a tree goes in" cp -a "$source" "$home/tree"
head -c 20000000 /dev/urandom > "$home/large"
sync -f "$home/large"
picture "$home" > "$at/there"
check "looking first moves nothing" says "would be done" 0 two move there -toserver both \
    -topartition b -dryrun
check "it goes to the second, with nothing said of which" says "moved to both /vicepb" 0 two move \
    there -toserver both
check "and is there alone" says "there " 0 two listvol both vicepb
check "not on the first" refused sh -c \
    "'$RIALTO' vos listvol both vicep --dir '$two' | grep -q '^there '"
check "it is what it was, byte for byte" diff "$at/there" <(picture "$home")
check "it takes changes" sh -c "echo more > '$home/more' && sync -f '$home/more' && rm '$home/more'"
touch -r "$home/tree" "$home"; picture "$home" > "$at/there"
check "it is there already" says "it is there" 1 two move there -toserver both -topartition b
( while [ ! -e "$at/stop" ]; do echo line >> "$home/log" ||
    echo failed >> "$at/failed"; done ) & writer=$!
for round in 1 2 3; do
    check "back, while somebody writes" says "moved to both /vicep:" 0 two move there \
        -fromserver both -frompartition b -toserver both -topartition vicep
    check "and there again" says "moved to both /vicepb" 0 two move there -toserver both \
        -topartition b
done
touch "$at/stop"; wait "$writer"
check "nobody's write failed" test ! -e "$at/failed"
check "the log is whole" test "$(sort -u "$home/log")" = line
rm "$home/log"; touch -r "$home/tree" "$home"
check "and all is what it was, byte for byte" diff "$at/there" <(picture "$home")
if [ -n "$small" ]; then
    head -c 80000000 /dev/urandom > "$home/larger"; sync -f "$home/larger"; touch \
        -r "$home/tree" "$home"; picture "$home" > "$at/full"
    check "where there is no room it does not go" says "partition is full" 1 two move there \
        -toserver both -topartition vicepc
    check "and nothing of it is left there" refused sh \
        -c "'$RIALTO' vos listvol both vicepc --dir '$two' | grep -q there"
    check "everything is as it was" diff "$at/full" <(picture "$home")
    check "nobody is at work on it" test "$(two listvldb -locked --json | wc -l)" = 0
    rm "$home/larger"; touch -r "$home/tree" "$home"
    # A small partition fills up; the others have room. The room of what was refused comes back
    # first, or it would come back while volumes are balanced.
    free_of() { two partinfo both vicepc --json | python3 -c 'import json, sys
print(json.loads(sys.stdin.readline())["free_bytes"])'; }
    swept() { local _; for _ in $(seq 120); do
        [ "$(free_of)" -lt 40000000 ] || return 0; sleep 0.5; done; free_of; return 1; }
    check "the room of what was refused comes back" swept
    check "a volume on it" two create both vicepc tight
    mkdir -p "$at/tight"
    check "is mounted" within 60 "$RIALTO" mount --daemon --dir "$local_dir" --volume tight \
        "unix:$two/server.sock" "$at/tight"
    head -c 64000000 /dev/urandom > "$at/tight/filling" 2> "$at/head"
    check "more does not fit" grep -q "No space left" "$at/head"
    check "and filled" within 60 "$RIALTO" umount --dir "$local_dir" "$at/tight"
    check "it is fuller than the others" says "tight (" 0 two balance -dryrun
    check "which moved nothing" says "tight " 0 two listvol both vicepc
    check "the volume moves where there is room" says "Total volumes moved: 1; failed" 0 two balance
    check "and is not on it any more" refused sh \
        -c "'$RIALTO' vos listvol both vicepc --dir '$two' | grep -q '^tight '"
    check "then all is even" says "0 volumes to move" 0 two balance
    check "it goes" two remove tight
else
    skip "a partition that is full, which needs root"
fi
check "a copy on the other partition" two copy there -toname copied -toserver both \
    -topartition vicep
check "the second is emptied" says "failed to move: 0" 0 two evacuate -server both -partition b
check "nothing is left there" refused sh -c \
    "'$RIALTO' vos listvol both vicepb --dir '$two' | grep -q '^there '"
check "it is what it was, byte for byte" diff "$at/there" <(picture "$home")
check "a scrub finds nothing" says "nothing is damaged" 0 within 120 "$RIALTO" doctor --scrub \
    --json --dir "$two"
check "who has it goes" within 60 "$RIALTO" umount --dir "$local_dir" "$home"
finish
