#!/bin/bash
# links.sh CELL DIRECTORY [COUNT]: what `ls -lF` of COUNT symbolic links (30,000) costs a client
# that knows nothing yet: FUSE requests by kind, and calls to the server.
# DIRECTORY is in a mount of the cell in CELL; for each form of links a fresh mount of it is made
# and listed. Root only: counts by the tracepoint fuse:fuse_request_send. RIALTO names the program.
set -euo pipefail
cell=$1 parent=$2 count=${3:-30000}
rialto=${RIALTO:-rialto}
tracing=/sys/kernel/tracing mounted=
[ -e $tracing/trace ] || { mount -t tracefs tracefs $tracing; mounted=yes; }
work=$(mktemp -d /var/tmp/rialto-links.XXXXXX)
made=$(mktemp -d "$parent/links.XXXXXX")
fresh=$work/mount
mkdir "$fresh"
cleanup() {
    echo 0 > $tracing/events/fuse/fuse_request_send/enable
    echo 1408 > $tracing/buffer_size_kb
    ! mountpoint -q "$fresh" || "$rialto" umount --dir "$work" "$fresh" > /dev/null
    [ -z "$mounted" ] || umount $tracing
    rm -rf "$made" "$work"
}
trap cleanup EXIT

mkdir "$made/one" "$made/many" "$made/files"
: > "$made/target"
python3 - "$made" "$count" << 'END'
import os, sys
made, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    os.symlink("../target", f"{made}/one/link-{i:06}")
    os.symlink(f"../files/file-{i:06}", f"{made}/many/link-{i:06}")
    open(f"{made}/files/file-{i:06}", "w").close()
END
sync -f "$made"
within=${made#"$(findmnt -no TARGET -T "$made")"}

calls() { "$rialto" status --dir "$cell" --json | python3 -c "
import json, sys
calls = json.load(sys.stdin)['report']['calls']
print(sum(count for name, count in calls.items() if name not in ('server_report', 'renew')))"; }

echo "| ls -lF of $count links | FUSE requests | which |" \
    "calls to the server | links for each call |"
echo '| --- | ---: | --- | ---: | ---: |'
for form in one many; do
    "$rialto" mount --daemon --dir "$work" "unix:$cell/server.sock" "$fresh" > /dev/null
    connection=$(stat -c %d "$fresh")
    echo 40000 > $tracing/buffer_size_kb
    echo > $tracing/trace
    before=$(calls)
    echo 1 > $tracing/events/fuse/fuse_request_send/enable
    shown=$(ls -lF "$fresh$within/$form" | grep -c ' -> ')
    echo 0 > $tracing/events/fuse/fuse_request_send/enable
    after=$(calls)
    [ "$shown" = "$count" ] || { echo "only $shown of $count links were listed"; exit 1; }
    what=$([ $form = one ] && echo 'to one file' || echo 'to as many files')
    sed -n "s/.*connection $connection .*(FUSE_\([A-Z0-9_]*\)).*/\1/p" $tracing/trace | sort |
        uniq -c | sort -rn |
        awk -v what="$what" -v calls=$((after - before)) -v links="$count" '
            { sum += $1; list = list sprintf("%s%s %d", NR > 1 ? ", " : "", $2, $1) }
            END { printf "| %s | %d | %s | %d | %d |\n", what, sum, list, calls, links / calls }'
    "$rialto" umount --dir "$work" "$fresh" > /dev/null
done
