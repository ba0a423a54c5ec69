#!/bin/bash
# Builds the example file system that libfuse ships, passthrough_ll, from Debian's libfuse3-dev,
# once, and prints its path. It hands every request to a directory below it: what any FUSE file
# system could reach.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-peers
program=$cache/passthrough_ll
examples=/usr/share/doc/libfuse3-dev/examples
fail() { echo "passthrough: $*" >&2; exit 1; }

if [ ! -x "$program" ]; then
    [ -e "$examples/passthrough_ll.c" ] || [ -e "$examples/passthrough_ll.c.gz" ] ||
        fail "its source is not in $examples; install libfuse3-dev ('scripts/setup.sh bench')"
    mkdir -p "$cache"
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
    for file in passthrough_ll.c passthrough_helpers.h; do
        if [ -e "$examples/$file" ]; then
            cp "$examples/$file" "$build/"; else gunzip -c "$examples/$file.gz" > "$build/$file"; fi
    done
    # The example includes a header that libfuse's own build would write.
    printf '#define HAVE_%s 1\n' COPY_FILE_RANGE UTIMENSAT POSIX_FALLOCATE STATX > "$build/config.h"
    # shellcheck disable=SC2046
    gcc -O2 -w -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -include "$build/config.h" \
        -I"$build" "$build/passthrough_ll.c" \
        $(pkg-config --cflags --libs fuse3) -o "$program.new" >&2 || fail "gcc could not build it"
    mv "$program.new" "$program"
fi
echo "$program"
