#!/bin/bash
# What applications may rely on: the console blocks of docs/spec/semantics.md, run on two mounts.
. "$(dirname "$0")/../lib/real.sh"
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$A/semantics"
check "the document's blocks print what it says" \
    python3 "$here/../lib/transcript.py" "$here/../../docs/spec/semantics.md" "$A/semantics" \
    "$B/semantics"
# A block whose output is wrong must be seen.
printf '```console\na$ echo one > f\nb$ cat f\ntwo\n```\n' > "$WORK/wrong.md"
check "a wrong block is seen" refused \
    python3 "$here/../lib/transcript.py" "$WORK/wrong.md" "$A/semantics" "$B/semantics"
# An overlay, as containers have it: its upper layer needs whiteouts and attributes of its own.
if [ "$(id -u)" = 0 ] && grep -qw overlay /proc/filesystems; then
    at=$WORK/overlay
    mkdir -p "$at/low/dir" "$at/all" "$A/semantics/up" "$A/semantics/work"
    for name in kept removed moved changed dir/in; do echo "$name" > "$at/low/$name"; done
    check "an overlay above it" mount -t overlay overlay -o \
        "lowerdir=$at/low,upperdir=$A/semantics/up,workdir=$A/semantics/work" "$at/all"
    check "takes changes" sh -c "cd '$at/all' && rm removed && mv moved there &&
        echo more >> changed && rm -r dir && mkdir dir && echo new > dir/new && mv dir dir2"
    check "shows them" test "$(cd "$at/all" && ls -R | tr '\n' ' ')" = \
        ".: changed dir2 kept there  ./dir2: new "
    check "and nothing of them below" test "$(cd "$at/low" && ls | tr '\n' ' ')" = \
        "changed dir kept moved removed "
    check "ends" umount "$at/all"
    check "another mount sees the upper layer" test "$(cat "$B/semantics/up/changed")" = "changed
more"
    check "with its whiteouts" test "$(stat -c %F,%t,%T "$B/semantics/up/removed")" = \
        "character special file,0,0"
else
    skip "an overlay: no root, or the kernel has no overlay file system"
fi
rm -rf "$A/semantics"
finish
