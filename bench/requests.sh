#!/bin/bash
# requests.sh DIRECTORY: which requests the kernel sends for each everyday operation on the FUSE
# mount that DIRECTORY is on.
# Root only; counts by the tracepoint fuse:fuse_request_send, so nothing else should use a FUSE
# mount meanwhile.
set -euo pipefail
dir=$(mktemp -d "$1/requests.XXXXXX")
trap 'rm -rf "$dir"; trace 0; [ -z "${mounted:-}" ] || umount "$tracing"' EXIT
tracing=/sys/kernel/tracing
if [ ! -e $tracing/trace ]; then mount -t tracefs tracefs $tracing; mounted=yes; fi
connection=$(stat -c %d "$dir")

trace() { echo "$1" > $tracing/events/fuse/fuse_request_send/enable; }

# count TIMES WHAT COMMAND...: requests of the command, divided by the number of files that it
# touches.
count() {
    local times=$1 what=$2
    shift 2
    sleep 1.5 # what earlier steps left behind
    echo > $tracing/trace
    trace 1
    "$@" > /dev/null
    sleep 0.3
    trace 0
    sed -n "s/.*connection $connection .*(FUSE_\([A-Z0-9_]*\)).*/\1/p" $tracing/trace | sort |
        uniq -c | sort -rn |
        awk -v times="$times" -v what="$what" '
            {
                each = $1 / times
                sum += each
                list = list sprintf("%s%s %.3g", NR > 1 ? ", " : "", $2, each)
            }
            END { printf "| %s | %.3g | %s |\n", what, sum, list }'
}

n=50
each() { # each PYTHON: with os, d, and n
    python3 -c "
import os
d, n = '$dir', $n
for i in range(n):
    p = f'{d}/f{i}'
    $1"
}
tree=$(mktemp -d); archive=$tree.tar
for i in $(seq $n); do head -c 3000 /dev/urandom > "$tree/file-$i"; done
tar -cf "$archive" -C "$tree" .

echo '| operation, of one file | requests | which |'
echo '| --- | ---: | --- |'
count $n 'create, write 4 KiB, close' each \
    "f = os.open(p, os.O_CREAT | os.O_WRONLY, 0o644); os.write(f, b'x' * 4096); os.close(f)"
count $n 'open, read 4 KiB, close; the first time' each \
    "f = os.open(p, os.O_RDONLY); os.read(f, 4096); os.close(f)"
count $n 'open, read 4 KiB, close; again' each \
    "f = os.open(p, os.O_RDONLY); os.read(f, 4096); os.close(f)"
count $n 'open, write over 4 KiB, close' each \
    "f = os.open(p, os.O_WRONLY); os.write(f, b'y' * 4096); os.close(f)"
count $n 'append a line (>>)' each \
    "f = os.open(p, os.O_WRONLY | os.O_APPEND); os.write(f, b'y'); os.close(f)"
count $n 'stat after that' each "os.stat(p)"
count $n 'stat again' each "os.stat(p)"
count $n 'stat of what is not there' each "os.path.exists(p + 'x')"
count $n 'the same again' each "os.path.exists(p + 'x')"
count $n 'chmod' each "os.chmod(p, 0o600)"
count $n 'rename' each "os.rename(p, p + 'r')"
count $n 'unlink' each "os.unlink(p + 'r')"
count $n 'mkdir and rmdir' each "os.mkdir(p); os.rmdir(p)"
count $n 'unpack by tar (a directory of 50)' tar -xf "$archive" -C "$dir"
count $n 'list it (ls -l)' ls -l "$dir"
count $n 'list it again' ls -l "$dir"
count $n 'copy it (cp -r)' cp -r "$dir" "$dir.copy"
count $n 'remove it (rm -r)' rm -r "$dir.copy"
rm -rf "$tree" "$archive"
