#!/bin/bash
# The tree of volumes as its users handle it: mount points made, seen, moved and removed with
# `rialto fs`; quotas; and the tools that everybody has at the edge between two volumes.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
top=$A/tree
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$top"
trap 'cd /; rm -f "$WORK/fs"
    within 60 "$RIALTO" umount --lazy --dir "$WORK/tree-far/local" "$WORK/tree-far/at" \
        > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$WORK/tree-far/cell" > /dev/null 2>&1' EXIT

vos() { within 120 "$RIALTO" vos "$@" --dir "$CELL"; }
fs() { within 60 "$RIALTO" fs "$@"; }
device() { stat -c %d "$1"; }

for volume in tree.work tree.deep tree.other tree.edge; do vos create $volume > /dev/null ||
    fail "creating $volume"; done

# Making, seeing, moving and removing them.
check "a mount point" fs mkmount -dir "$top/work" -vol tree.work
check "is where it was made" test -d "$top/work"
check "says where it leads" says "'$top/work' is a mount point for volume '#tree.work'" 0 fs \
    lsmount "$top/work"
check "in JSON too" says '"target":"#tree.work"' 0 fs lsm -dir "$top/work" --json
check "one that is always read-write" fs mkm "$top/work/deep" tree.deep -rw
check "is marked so" says "'%tree.deep'" 0 fs lsmount "$top/work/deep"
check "one of another cell" fs mkmount "$top/far" root.cell -cell other.example -fast
check "says so" says "'#other.example:root.cell'" 0 fs lsmount "$top/far"
check "it is removed though it leads nowhere" fs rmmount "$top/far"
check "a volume that is not there yet is said" says \
    "names a volume tree.absent that does not exist yet" 0 fs mkmount "$top/absent" tree.absent
check "and it is no directory" refused ls "$top/absent"
check "but it is listed" sh -c "ls '$top' | grep -qx absent"
ln -s "$top/work" "$top/link"
check "through a link" says "is a symbolic link, leading to a mount point for volume '#tree.work'" \
    0 fs lsmount "$top/link"
check "several, one of them none" says "it is no mount point" 1 fs lsmount "$top/work" "$top"
check "a directory is not removed as one" says "it is no mount point" 1 fs rmmount "$A/tree"
check "nor what is not there" says "there is nothing with that name" 1 fs rmmount "$top/nothing"
check "nor is one made twice" says "choose another name" 1 fs mkmount "$top/work" tree.other
check "nor outside of the tree" says "is not in Rialto's tree" 1 fs mkmount "$WORK/outside" \
    tree.work
check "nor with a path for its volume" says "stands for the volume and is a path" 2 \
    fs mkmount "$top/bad" 'a/b'
echo text > "$top/work/deep/file"
mkdir "$top/dir"
check "it is moved" fs mvmount "$top/work" "$top/dir/moved"
check "the volume is there now" grep -q text "$top/dir/moved/deep/file"
check "and not here" refused ls "$top/work"
check "the other mount sees it too" within 20 sh \
    -c "until grep -q text '$B/tree/dir/moved/deep/file' 2> /dev/null; do sleep 0.1; done
        ! ls '$B/tree/work' 2> /dev/null"
check "it does not move into another volume" says "different volumes" 1 fs mvmount \
    "$top/dir/moved" "$top/dir/moved/deep/x"
check "and back" fs mvmount "$top/dir/moved" "$top/work"
check "a link named fs is the command" sh \
    -c "ln -sf '$RIALTO' '$WORK/fs' && '$WORK/fs' lsm -dir '$top/work' | grep -q tree.work"
check "any language can" sh -c "python3 -c \"import os, sys
print(os.getxattr(sys.argv[1], 'rialto.mount:work').decode())\" '$top' | grep -qx '#tree.work'"

# @sys.
check "the list of @sys" says "'linux'" 0 fs sysname -path "$top"
mkdir "$top/bin" "$top/bin/linux" "$top/bin/mine" && echo ours > "$top/bin/linux/tool" &&
    echo mine > "$top/bin/mine/tool"
ln -s "$top/bin/@sys/tool" "$top/tool"
check "leads to this machine's" grep -q ours "$top/tool"
check "another list" says "new sysname list set." 0 fs sysname -newsys mine linux -path "$top"
check "leads elsewhere at once" grep -q mine "$top/tool"
check "in this mount" grep -q ours "$B/tree/bin/@sys/tool"
check "which only root sets" says "only root may" 1 setpriv --reuid 65534 \
    --clear-groups "$RIALTO" fs sysname -newsys other -path "$top"
check "and which has names" says "no list of names" 1 fs sysname -newsys a/b -path "$top"

# What volumes use.
check "quotas of several volumes" fs setvol -p "$top/work" "$top/work" -m 40M
check "which are shown" says "40960" 0 fs listquota "$top/work"
check "a quota" fs setquota "$top/work" -max 50M
check "is the size of its file system" test "$(df -B1 --output=size "$top/work" | tail -n 1)" -eq \
    $((50 << 20))
check "and of no other" test "$(df -B1 --output=size "$top" | tail -n 1)" -ne $((50 << 20))
head -c 20000000 /dev/urandom > "$top/work/large"
check "what is used is listed" says "38%" 0 fs listquota "$top/work"
check "with units" says "50.0 MiB" 0 fs lq -human "$top/work"
check "and as a share" says "38% of quota used." 0 fs quota "$top/work"
check "examine tells the volume" says "named tree.work" 0 fs examine "$top/work/large"
check "df, as OpenAFS has it" says "tree.work" 0 fs df "$top/work"
check "no more fits than that" sh -c \
    "! dd if=/dev/zero of='$top/work/more' bs=1M count=40 conv=fsync 2> /dev/null
        rm -f '$top/work/more'"
check "no limit any more" fs sq "$top/work" 0
check "a limit of files" fs setquota "$top/work" -files 20
check "holds" sh -c "! (for i in \$(seq 30); do
        : > '$top/work/f'\$i || exit 1
        sync '$top/work/f'\$i || exit 1
    done) 2> /dev/null
    rm -f '$top/work/f'*"
fs setquota "$top/work" -files 0
check "only root may" says "only root may" 1 setpriv --reuid 65534 \
    --clear-groups "$RIALTO" fs setquota "$top/work" 1000
cell=$(sed -n 's/^name = "\(.*\)"/\1/p' "$CELL/cell.toml")
check "which cell" says "lives in cell '$cell'" 0 fs whichcell "$top/work/large"
check "this machine's cell" says "belongs to cell '$cell'" 0 fs wscell -path "$top"
check "where it is" says "is on host" 0 fs whereis "$top/work"
check "its fid" says "located in cell $cell" 0 fs getfid "$top/work/large"
check "servers answer" says "All servers are running." 0 fs checkservers -path "$A"
check "the disk cache" says "1K byte blocks" 0 fs getcacheparms -path "$B"
sum=$(sha256sum < "$B/tree/work/large")
for order in flush flushvolume; do
    check "$order" fs $order "$B/tree/work/large"
    check "the file is whole after it" test "$(sha256sum < "$B/tree/work/large")" = "$sum"
done
check "flushmount" within 30 sh -c \
    "until '$RIALTO' fs flushmount '$B/tree/work' 2> /dev/null; do sleep 0.2; done"
check "checkvolumes" says "mappings checked" 0 fs checkvolumes -path "$B"
check "and the volume is there again" test "$(sha256sum < "$B/tree/work/large")" = "$sum"

# The edge, as everybody's tools see it.
fs mkmount "$top/work/other" tree.other
echo kept > "$top/work/other/kept"
ls "$top/work/deep" > /dev/null
check "each volume has a device number" test \
    "$(device "$top" ; device "$top/work"; device "$top/work/deep")" != \
    "$(device "$top"; device "$top"; device "$top")"
# The kernel detaches a volume whose name ends, as that of a new mount point does a moment after it
# was made; the next walk attaches it again.
all_attached() {
    local attached
    for _ in $(seq 50); do
        ls "$top/work/deep" "$top/work/other" > /dev/null
        attached=$(awk -v at="$top/work" 'index($5, at) == 1 { print $3, $5 }' /proc/self/mountinfo)
        [ "$(wc -l <<< "$attached")" = 3 ] && return
        sleep 0.1
    done
    echo "$attached"
    return 1
}
check "and a line in the table of mounts" all_attached
check "find -xdev stays" test "$(cd "$top" && find . -xdev -name kept | wc -l)" = 0
check "find goes" test "$(cd "$top" && find . -name kept | wc -l)" = 1
check "du -x stays" test "$(cd "$top" && du -x -a . | grep -c kept)" = 0
check "tar --one-file-system stays" test \
    "$(tar -C "$top" --one-file-system -cf - . 2> /dev/null | tar -tf - | grep -c kept)" = 0
check "tar goes" test "$(tar -C "$top" -cf - . 2> /dev/null | tar -tf - | grep -c kept)" = 1
# A mount point whose volume is not there answers as in AFS: it is listed, and everything else says
# ENODEV. A copier names it and copies the rest; since it reports an error, --delete takes nothing
# away, such as the copy of a volume that was there yesterday.
if command -v rsync > /dev/null; then
    mkdir -p "$WORK/copied/absent" && echo yesterday > "$WORK/copied/absent/copy"
    check "rsync names a mount point that leads nowhere" says "No such device" 23 env LC_ALL=C \
        rsync -ax --delete "$top/" "$WORK/copied/"
    check "and deletes no older copy of it" grep -qx yesterday "$WORK/copied/absent/copy"
    check "and copies all the rest" test -e "$WORK/copied/bin/linux/tool"
    check "rsync -x stays" sh -c "! find '$WORK/copied' -name kept | grep -q ."
    rm -rf "$WORK/copied"
    check "rsync -x leaves out what leads nowhere when it is told to" sh \
        -c "rsync -ax --exclude=/absent '$top/' '$WORK/copied/' &&
            ! find '$WORK/copied' -name kept | grep -q ."
else
    skip "rsync is missing (scripts/setup.sh test installs it)"
fi
check "find says which mount point leads nowhere" says "./absent" 1 env -C "$top" LC_ALL=C find . \
    -xdev -type s
check "tar too" says "absent" 2 env LC_ALL=C tar -C "$top" --one-file-system -cf "$WORK/edge.tar" .
mkdir "$top/holder" && : > "$top/holder/plain" && fs mkmount "$top/holder/edge" tree.edge &&
    echo kept > "$top/holder/edge/kept"
check "rm --one-file-system stays" sh -c \
    "! rm -rf --one-file-system '$top/holder' 2> /dev/null &&
        grep -q kept '$top/holder/edge/kept' && ! test -e '$top/holder/plain'"
check "rm -rf does not take the mount point" sh \
    -c "! rm -rf '$top/holder' 2> /dev/null; '$RIALTO' fs lsmount '$top/holder/edge'"
fs rmmount "$top/holder/edge"
for refused_here in "rmdir $top/work" "rm -f $top/work" "mv $top/work $top/elsewhere" \
    "mv -T $top/dir $top/work" "rm -d $top/work"; do
    check "refused: ${refused_here//$top\//}" refused $refused_here
done
check "cp -a copies through the edge" sh -c \
    "cp -a '$top/work' '$WORK/out' && grep -q kept '$WORK/out/other/kept' &&
        cmp '$top/work/large' '$WORK/out/large'"
check "a move across it copies" sh -c \
    "echo across > '$top/across' && mv '$top/across' '$top/work/across' &&
        grep -q across '$top/work/across' && ! test -e '$top/across'"
check "a link across it is refused" says "cross-device" 1 ln "$top/work/across" "$top/across"
check "df names the volume" sh -c "df --output=source '$top/work/other' | grep -q '#tree.other'"
if command -v git > /dev/null; then
    check "git works beside an edge" sh -c \
        "cd '$top/work' && git init -q . && cp '$source/Cargo.toml' . && git add Cargo.toml &&
            git -c user.name=x -c user.email=x@y commit -qm one &&
                git status --porcelain | grep -q other/"
    check "and in the volume below it" sh -c \
        "cd '$top/work/other' && git init -q . && git status --porcelain | grep -q kept"
fi

# Who stands in a volume stays there whatever happens above.
(cd "$top/work/deep" && while [ ! -e end ]; do /bin/pwd > /dev/null || exit 1; [ -e file ] ||
    exit 2; done; /bin/pwd) > "$WORK/pwd.log" 2>&1 & standing=$!
for i in $(seq 200); do mkdir "$B/tree/new-$i"; [ $((i % 3)) = 0 ] &&
    rmdir "$B/tree/new-$i"; [ $((i % 7)) = 0 ] && ls "$top" > /dev/null; done
touch "$B/tree/work/deep/end"
check "getcwd in a volume while others change what is above" wait $standing
check "it is the path that it was" grep -qx "$top/work/deep" "$WORK/pwd.log"

# Another cell, whose volumes and files have the same numbers.
far=$WORK/tree-far
mkdir -p "$far/at"
check "another cell" within 90 "$RIALTO" up --no-mount --dir "$far/cell" --cell far.test \
    --trust 127.0.0.0/8 --trust-root --listen 127.0.0.1:0
fs mkmount "$top/far" root.cell -cell far.test -fast
check "which nobody said where it is" refused ls "$top/far"
printf '["far.test"]\nservers = ["%s"]\n' \
    "$(sed -n 's/^listen = "\(.*\)"/\1/p' "$far/cell/cell.toml")" > "$CELL/cells.toml"
check "is there once cells.toml says so" sh \
    -c "echo far > '$top/far/tree' && grep -qx far '$top/far/tree'"
check "and has its own name" says "lives in cell 'far.test'" 0 fs whichcell "$top/far"
check "and its own file system" test "$(device "$top/far")" != "$(device "$A")"
check "a mount of it shows the same" sh -c \
    "'$RIALTO' mount --daemon --dir '$far/local' 'unix:$far/cell/server.sock' '$far/at' &&
        grep -qx far '$far/at/tree' && echo back > '$far/at/tree' && grep -qx back '$top/far/tree'"
# The root of all cells.
mkdir "$far/all"
check "the root of all cells" within 60 "$RIALTO" mount --dynroot --daemon --dir "$CELL" "$far/all"
check "lists ours and those of cells.toml" sh \
    -c "ls '$far/all' | grep -qx '$cell' && ls '$far/all' | grep -qx far.test"
check "each with its root.cell" sh -c \
    "grep -qx back '$far/all/far.test/tree' && test -d '$far/all/$cell/tree'"
check "as a file system of its own" sh -c \
    "test \$(find '$far/all' -xdev -type d -name tree | wc -l) -eq 0 &&
        find '$far/all' -maxdepth 2 -name tree | grep -q far.test"
check "the written one too, which is the same while nothing is released" sh \
    -c "echo written > '$far/all/.far.test/new' && grep -qx written '$far/all/far.test/new'"
check "and nothing else" sh -c "! ls '$far/all/nowhere' 2> /dev/null &&
    ! mkdir '$far/all/new' 2> /dev/null"
check "it says what it is" says "named dynroot" 0 fs examine "$far/all"
check "each volume says its cell" says "lives in cell 'far.test'" 0 fs whichcell "$far/all/far.test"
check "df shows all" sh -c "df '$far/all' > /dev/null &&
    df --output=source '$far/all/far.test' | grep -q 'rialto:far.test#root.cell'"
check "it is unmounted with all below it" within 60 "$RIALTO" umount --dir "$CELL" "$far/all"
# DNS knows it too.
mv "$CELL/cells.toml" "$WORK/cells.toml"
python3 - "$(sed -n 's/^listen = ".*:\(.*\)"/\1/p' "$far/cell/cell.toml")" "$WORK/dns.port" \
    << 'END' & dns=$!
import socket, struct, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
open(sys.argv[2], "w").write(str(udp.getsockname()[1]))
def name(text):
    labels = (bytes([len(label)]) + label.encode() for label in text.split("."))
    return b"".join(labels) + b"\0"
while True:
    asked, who = udp.recvfrom(512)
    question = asked[12:]
    if question.startswith(name("_rialto._tcp.far.test")):
        target = name("afs.far.test")
        port = int(sys.argv[1])
        srv = struct.pack(">HHHLHHHH", 0xC00C, 33, 1, 60, 6 + len(target), 1, 1, port) + target
        glue = target + struct.pack(">HHLH", 1, 1, 60, 4) + bytes([127, 0, 0, 1])
        head = asked[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 1)
        udp.sendto(head + question + srv + glue, who)
    else:
        udp.sendto(asked[:2] + struct.pack(">HHHHH", 0x8183, 1, 0, 0, 0) + question, who)
END
within 10 sh -c "until test -s '$WORK/dns.port'; do sleep 0.1; done"
check "a root that knows no other cell" within 60 "$RIALTO" mount --dynroot --daemon --dir "$CELL" \
    --name-server "127.0.0.1:$(cat "$WORK/dns.port")" "$far/all"
check "does not list one" sh -c "! ls '$far/all' | grep -q far.test"
check "but finds it" grep -qx back "$far/all/far.test/tree"
check "and lists it from then on" within 10 sh \
    -c "until ls '$far/all' | grep -qx far.test; do sleep 0.1; done"
check "and finds no other" refused ls "$far/all/other.test"
check "it is unmounted too" within 60 "$RIALTO" umount --dir "$CELL" "$far/all"
kill $dns
mv "$WORK/cells.toml" "$CELL/cells.toml"
# Who ends a cell for good has the clients hand over first.
check "all of it is there" sync "$top/far/tree"
check "ours is ours" test -d "$A/tree/dir"
within 60 "$RIALTO" umount --dir "$far/local" "$far/at" > /dev/null
check "its mount point is removed as any" fs rmmount "$top/far"
check "and the cell ends" within 90 "$RIALTO" down --dir "$far/cell"
rm -f "$CELL/cells.toml"

# What an administrator does.
check "a snapshot" vos snapshot create tree.work before
check "is mounted below the tree" fs mkmount "$top/before" tree.work.snapshot.before
check "read-only" sh -c "! touch '$top/before/new' 2> /dev/null &&
    cmp '$top/before/large' '$top/work/large' && grep -q ' $top/before .* ro,' /proc/self/mountinfo"
check "a quota cannot be set there, and what to do is said" says "read-write volume" 1 fs setquota \
    "$top/before" 1000
check "but orders are carried out" fs flushvolume "$top/before"
check "a mount point is removed" fs rmmount "$top/before" "$top/absent"
check "and gone" refused ls "$top/before"
check "its volume is not" vos examine tree.work.snapshot.before
vos snapshot remove tree.work before > /dev/null
check "all of them" within 60 sh -c \
    "cd / && '$RIALTO' fs rmmount '$top/work/deep' '$top/work/other' &&
        '$RIALTO' fs rmmount '$top/work'"
check "manual pages" sh -c "'$RIALTO' man '$WORK/man-fs' &&
    test -s '$WORK/man-fs/rialto-fs-mkmount.1'"
rm -rf --one-file-system "$top" && pass "what is left is removed" ||
    fail "what is left cannot be removed: $(find "$top" | head)"
for volume in tree.work tree.deep tree.other tree.edge; do vos remove $volume > /dev/null ||
    fail "removing $volume"; done
finish
