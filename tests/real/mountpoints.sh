#!/bin/bash
# A directory of mount points, one for each user, as the first thing that an AFS person looks at:
# looking at it mounts nothing, walking through some of them works and costs no threads, walking
# through more than may be mounted works too, and one volume may be in many places.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
dir=mountpoints
if [ "$QUICK" = yes ]; then
    points=1000 entered=40 walked=0
else
    # The third is more than six times what may be mounted at once.
    points=10000 entered=2000 walked=27000
fi

volumes() { # volumes FIRST COUNT
    within 1800 "$TOOLS/many_volumes" "unix:$CELL/server.sock" /vicep user. "$1" "$2"
}
mount_points() { # mount_points DIR COUNT
    python3 -c '
import os, sys
at, points = sys.argv[1], int(sys.argv[2])
for i in range(points):
    os.setxattr(at, f"rialto.mount:u{i:05}", f"#user.{i:05}".encode())' "$1" "$2"
}
mib() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$pid/status"; }
threads() { cat "/proc/$pid"/task/*/comm 2> /dev/null | wc -l; }
descriptors() { ls "/proc/$pid/fd" | wc -l; }
# Idle workers end after ten seconds.
few_threads() { # few_threads MOST
    local end=$((SECONDS + 60))
    until [ "$(threads)" -le "$1" ]; do
        if [ $SECONDS -ge $end ]; then
            echo "$(threads) threads, not $1:"
            cat "/proc/$pid"/task/*/comm | sort | uniq -c
            return 1
        fi
        sleep 0.2
    done
}
mounted() { grep -c " $B/$dir/" /proc/self/mountinfo; }
calls_by_name() {
    "$RIALTO" status --json --dir "$CELL" | python3 -c '
import json, sys
calls = json.load(sys.stdin)["report"]["calls"]
# Those of this status.
own = ("server_report", "root", "volume_status", "cell_me", "partitions", "volume_examine",
       "cell_level", "cell_servers")
for name, count in calls.items():
    if name not in own:
        print(name, count)'
}
calls() { calls_by_name | awk '{ sum += $2 } END { print sum + 0 }'; }

# What the first mount answered by itself is at the server.
quiet() {
    local end=$((SECONDS + 60)) was=-1 now
    until now=$(calls_by_name) && [ "$now" = "$was" ]; do
        if [ $SECONDS -ge $end ]; then
            diff <(echo "$was") <(echo "$now")
            return 1
        fi
        was=$now
        sleep 2
    done
}

mkdir "$A/$dir"
check "$points mount points" mount_points "$A/$dir" $points
check "$entered volumes" volumes 0 $entered

check "the server is not asked any more" quiet
before=$(calls)
began=$(date +%s%N)
check "ls -l shows them" test "$(ls -l "$B/$dir" | grep -c '^d')" -eq $points
took=$((($(date +%s%N) - began) / 1000000))
note "ls -l of $points mount points took $took ms"
check "and that took at most 5 s" test $took -le 5000
check "nothing is mounted" test "$(mounted)" -eq 0
count=$(($(calls) - before))
note "$count calls to the server"
# Pages of the listing, and what the other mount does meanwhile.
check "and the server is not asked for each" test $count -le 20
check "nor do stat, test and a completion mount any" sh -c \
    "cd '$B/$dir' && stat u00000 > /dev/null && test -d u00001 &&
        [ \$(bash -c 'compgen -d u0000' | wc -l) -eq 10 ]"
check "still nothing is mounted" test "$(mounted)" -eq 0

pid=$(mount_pid "$B")
threads=$(threads) descriptors=$(descriptors)
began=$(date +%s%N)
check "$entered of them are entered and written" sh -c "for i in \$(seq 0 $((entered - 1))); do
    echo \$i > '$B/$dir'/u\$(printf %05d \$i)/file || exit 1; done"
note "entering took $((($(date +%s%N) - began) / 1000000)) ms; $(mounted) mounted," \
    "$(threads) threads, $(descriptors) descriptors, $(mib) MiB"
check "all are mounted" test "$(mounted)" -eq $entered
check "which costs no threads" few_threads $((threads + 7))
check "three descriptors for each" test "$(descriptors)" -le $((descriptors + 3 * entered + 20))
check "and less than 300 MiB" test "$(mib)" -lt 300
check "another mount reads them" test "$(cat "$A/$dir"/u000[0-3]?/file | md5sum)" = \
    "$(seq 0 39 | md5sum)"
# Most of the others lead nowhere.
check "find stays on its side" test "$(find "$B/$dir" -xdev -name file 2> /dev/null | wc -l)" -eq 0
check "one leads nowhere" says "No such device" 2 ls "$B/$dir/u$(printf %05d $((points - 1)))"

if [ $walked -gt 0 ]; then
    mkdir "$A/$dir.walk"
    check "$walked mount points" mount_points "$A/$dir.walk" $walked
    check "$((walked - entered)) more volumes" volumes $entered $((walked - entered))
    began=$SECONDS
    find "$B/$dir.walk" -maxdepth 2 > "$WORK/walk.out" 2> "$WORK/walk.err" & walk=$!
    : > "$WORK/walk.log"
    while kill -0 $walk 2> /dev/null; do
        echo "$(mib) $(threads) $(grep -c " $B/$dir" /proc/self/mountinfo)" >> "$WORK/walk.log"
        sleep 1
    done
    wait $walk
    check "find walks through all of them" test $? -eq 0
    head -n 5 "$WORK/walk.err"
    count=$(wc -l < "$WORK/walk.out")
    check "and sees them" test "$count" -eq $((1 + walked + entered))
    note "find took $((SECONDS - began)) s"
    most() { # most COLUMN LINES: of the first lines
        head -n "$2" "$WORK/walk.log" | cut -d ' ' -f "$1" | sort -n | tail -n 1
    }
    lines=$(wc -l < "$WORK/walk.log")
    note "at most $(most 1 "$lines") MiB, $(most 2 "$lines") threads, $(most 3 "$lines") mounted"
    check "memory is flat" test "$(most 1 "$lines")" -le \
        $(($(most 1 $((lines / 2))) * 5 / 4))
    check "and less than 500 MiB" test "$(most 1 "$lines")" -lt 500
fi

# One volume at many places.
mkdir "$A/$dir.places"
for i in 1 2 3 4 5; do
    check "place $i of a volume" python3 -c 'import os, sys
os.setxattr(sys.argv[1], f"rialto.mount:{sys.argv[2]}", b"%user.00000")' "$A/$dir.places" "$i"
done
check "a tree is built through all of them" sh -c "for i in 1 2 3 4 5; do
    mkdir '$B/$dir.places'/\$i/d\$i && echo \$i > '$B/$dir.places'/\$i/d\$i/f || exit 1; done"
for i in 1 2 3 4 5; do
    check "place $i has all of it" test \
        "$(cat "$B/$dir.places/$i"/d*/f | tr '\n' ' ')" = "1 2 3 4 5 "
done
check "it moves from place to place" mv "$B/$dir.places/1/d1" "$B/$dir.places/2/d2/"
check "which the other mount sees at a third" test -e "$A/$dir.places/3/d2/d1/f"

# What removes: a mount point is refused, and tools that stay on one file system take nothing out
# of a volume, whether it was entered before or not.
for entered in no yes; do
    mkdir "$B/$dir.edge"
    check "a directory with a mount point" python3 -c 'import os, sys
os.setxattr(sys.argv[1], "rialto.mount:point", b"%user.00000")' "$B/$dir.edge"
    : > "$B/$dir.edge/plain"
    [ $entered = no ] || ls "$B/$dir.edge/point/" > /dev/null
    for command in "rmdir $B/$dir.edge/point" "unlink $B/$dir.edge/point" \
        "mv $B/$dir.edge/point $B/$dir.edge/moved" "mv -T $B/$dir.places $B/$dir.edge/point"; do
        check "refused, entered $entered: ${command//$B\/$dir/}" refused within 30 $command
    done
    mkdir -p "$WORK/empty"
    for command in "rm -rf --one-file-system $B/$dir.edge" "find $B/$dir.edge -xdev -delete" \
        "rsync -ax --delete $WORK/empty/ $B/$dir.edge/"; do
        command -v "${command%% *}" > /dev/null || continue
        : > "$B/$dir.edge/plain"
        within 60 $command > /dev/null 2>&1
        check "its volume is whole, entered $entered: ${command//$B\/$dir/}" test -s \
            "$A/$dir.places/3/d2/d1/f"
        check "and the plain file is gone" refused test -e "$B/$dir.edge/plain"
    done
    check "the mount point goes by its own command" "$RIALTO" fs rmmount "$B/$dir.edge/point"
    check "and its directory" rmdir "$B/$dir.edge"
done

# A plain rm empties no volume that it meets, and removes what it is given in one.
mkdir "$B/$dir.rm" "$B/$dir.rm/sub"
check "a directory with a mount point below" python3 -c 'import os, sys
os.setxattr(sys.argv[1], "rialto.mount:point", b"%user.00001")' "$B/$dir.rm/sub"
point=$B/$dir.rm/sub/point
ln -s "$B/$dir.rm" "$WORK/link"
filled() {
    mkdir -p "$point/deep/er" &&
        touch "$point/keep" "$point/deep/er/keep" "$B/$dir.rm/plain"
}
is_whole() { test -e "$A/$dir.rm/sub/point/keep" && test -e "$A/$dir.rm/sub/point/deep/er/keep"; }
# A program that removes by paths, as some do.
cat > "$WORK/by_paths.c" << 'END'
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int failed;
static void drop(const char *path) {
    struct stat at;
    if (lstat(path, &at) == 0 && S_ISDIR(at.st_mode)) {
        DIR *dir = opendir(path);
        struct dirent *one;
        while (dir != NULL && (one = readdir(dir)) != NULL) {
            char below[4096];
            if (strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
            snprintf(below, sizeof below, "%s/%s", path, one->d_name);
            drop(below);
        }
        if (dir != NULL) closedir(dir);
        if (rmdir(path) == 0) return;
    } else if (unlink(path) == 0) return;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    failed = 1;
}
int main(int count, char **words) {
    for (int at = 1; at < count; at++) if (words[at][0] != '-') drop(words[at]);
    return failed;
}
END
mkdir "$WORK/by_paths"
programs=(rm)
if cc -o "$WORK/by_paths/rm" "$WORK/by_paths.c"; then
    programs+=("$WORK/by_paths/rm")
else
    skip "no C compiler: no rm that removes by paths"
fi
for rm in "${programs[@]}"; do
    for what in "$B/$dir.rm" "$point" "$WORK/link/sub"; do
        check "files in the volume" filled
        check "$(basename "$rm") of ${what##*/} is held back, and says why" says \
            "Invalid cross-device link" 1 within 60 "$rm" -rf "$what"
        check "its volume is whole" is_whole
    done
    check "a name in the volume is removed" within 60 "$rm" -rf "$point/deep"
    check "and only that" sh -c "test ! -e '$point/deep' && test -e '$point/keep'"
    check "files in it again" filled
    check "all names in it are removed" within 60 sh -c "cd '$point' && '$rm' -rf *"
    check "it is empty" test -z "$(ls -A "$point")"
    check "and filled" filled
    check "through a link too" within 60 "$rm" -f "$WORK/link/sub/point/keep"
    check "it is gone" refused test -e "$point/keep"
done
check "other programs are not held back" within 60 find "$point" -mindepth 1 -delete
check "and it is empty" test -z "$(ls -A "$point")"
check "the mount point goes by its own command" "$RIALTO" fs rmmount "$point"
check "and what is above it" rm -r "$B/$dir.rm"

# A volume is removed and restored under its name, while it is in use.
vos() { within 120 "$RIALTO" vos "$@" --dir "$CELL"; }
check "a volume" vos create mountpoints.again
check "has a mount point" "$RIALTO" fs mkmount "$A/$dir.again" mountpoints.again -rw
check "and a file" sh -c "echo old > '$B/$dir.again/file' && sync '$B/$dir.again/file'"
check "a dump of it" vos dump mountpoints.again -file "$WORK/again.dump"
exec 7< "$B/$dir.again/file"
check "it is removed" says "deleted" 0 vos remove mountpoints.again
for tree in "$A" "$B"; do
    check "a walk says so" says "No such device" 2 within 30 ls "$tree/$dir.again/"
done
check "it is restored" says "Restored volume" 0 vos restore -name mountpoints.again \
    -file "$WORK/again.dump"
for tree in "$A" "$B"; do
    check "and the next walk finds it" test "$(within 30 cat "$tree/$dir.again/file")" = old
    check "to be written" within 30 sh -c "echo $tree > '$tree/$dir.again/new'"
done
check "what was open is stale" grep -qE "Stale file handle|Input/output error" <(
    within 30 cat <&7 2>&1)
exec 7<&-
check "the mount point goes" "$RIALTO" fs rmmount "$A/$dir.again"
check "and the volume" vos remove mountpoints.again
finish
