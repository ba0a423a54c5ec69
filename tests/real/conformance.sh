#!/bin/bash
# POSIX conformance: pjdfstest's cases on mount A, as root; on both mounts in the long form.
. "$(dirname "$0")/../lib/real.sh"
needs_root
here=$(cd "$(dirname "$0")" && pwd)
export PJDFSTEST_ROOT=$CACHE/pjdfstest

cases() { # cases DIRECTORY: each case counts; what failed is shown with its reason
    local log=$WORK/pjdfstest.log
    within 3600 "$here/pjdfstest.sh" "$1" > "$log" 2>&1
    local status=$?
    tail -n 1 "$log"
    [ $status -eq 0 ] && return 0
    grep -iE 'fail|error|panick' "$log" | head -n 40
    return $status
}
run() { # the last line of the tool says how many cases there were
    check "all cases pass on $(basename "$1")" cases "$1"
    tail -n 3 "$WORK/pjdfstest.log" | sed 's/^/     | /'
}
run "$A"
[ "$QUICK" = yes ] || run "$B"
finish
