#!/bin/bash
# A directory of mount points, one for each user, as the first thing that an AFS person looks at:
# looking at it mounts nothing, walking through some of them works, and one volume may be in many
# places.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
dir=mountpoints
if [ "$QUICK" = yes ]; then points=1000 entered=40; else points=10000 entered=2000; fi

vos() { within 120 "$RIALTO" vos "$@" --dir "$CELL"; }
mounted() { grep -c " $B/$dir/" /proc/self/mountinfo; }
calls() {
    "$RIALTO" status --json --dir "$CELL" | python3 -c '
import json, sys
calls = json.load(sys.stdin)["report"]["calls"]
print(sum(count for name, count in calls.items() if name != "ServerReport"))'
}

mkdir "$A/$dir"
check "$points mount points" python3 -c '
import os, sys
at, points = sys.argv[1], int(sys.argv[2])
for i in range(points):
    os.setxattr(at, f"rialto.mount:u{i:05}", f"#user.{i:05}".encode())' "$A/$dir" $points
check "$entered volumes" sh -c "for i in \$(seq 0 $((entered - 1))); do
    '$RIALTO' vos create localhost vicep user.\$(printf %05d \$i) --dir '$CELL' || exit 1; done"

before=$(calls)
began=$(date +%s%N)
check "ls -l shows them" test "$(ls -l "$B/$dir" | grep -c '^d')" -eq $points
note "ls -l of $points mount points took $((($(date +%s%N) - began) / 1000000)) ms"
check "nothing is mounted" test "$(mounted)" -eq 0
count=$(($(calls) - before))
note "$count calls to the server"
# Pages of the listing, and what the other mount and this status do meanwhile.
check "and the server is not asked for each" test $count -le 60
check "nor do stat, test and a completion mount any" sh -c \
    "cd '$B/$dir' && stat u00000 > /dev/null && test -d u00001 &&
        [ \$(bash -c 'compgen -d u0000' | wc -l) -eq 10 ]"
check "still nothing is mounted" test "$(mounted)" -eq 0

pid=$(mount_pid "$B")
began=$(date +%s%N)
check "$entered of them are entered and written" sh -c "for i in \$(seq 0 $((entered - 1))); do
    echo \$i > '$B/$dir'/u\$(printf %05d \$i)/file || exit 1; done"
note "entering took $((($(date +%s%N) - began) / 1000000)) ms; $(mounted) mounted," \
    "$(ls "/proc/$pid/task" | wc -l) threads, $(ls "/proc/$pid/fd" | wc -l) descriptors," \
    "$(awk '/^VmRSS/ { print $2 / 1024 }' "/proc/$pid/status") MiB"
check "another mount reads them" test "$(cat "$A/$dir"/u000[0-3]?/file | md5sum)" = \
    "$(seq 0 39 | md5sum)"
check "find stays on its side" test "$(find "$B/$dir" -xdev -name file | wc -l)" -eq 0
check "one leads nowhere" says "No such device" 2 ls "$B/$dir/u00999"

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
finish
