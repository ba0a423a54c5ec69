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
rm -rf "$A/semantics"
finish
