#!/bin/bash
# POSIX conformance: pjdfstest's cases on mount A, as root; on both mounts in the long form.
. "$(dirname "$0")/../lib/real.sh"
needs_root
here=$(cd "$(dirname "$0")" && pwd)
export PJDFSTEST_ROOT=$CACHE/pjdfstest

run() { # run DIRECTORY: what failed is shown with its reason
    local log=$WORK/pjdfstest.log
    within 3600 "$here/pjdfstest.sh" "$1" > "$log" 2>&1
    local status=$?
    local summary
    summary=$(awk '/^Summary:/ { failed += $2; skipped += $4; passed += $6 }
        END { printf "%d passed, %d failed, %d skipped", passed, failed, skipped }' "$log")
    if [ $status -eq 0 ]; then pass "$(basename "$1"): $summary"; return; fi
    fail "$(basename "$1"): $summary (exit code $status)"
    grep -E 'FAILED$|panicked at|assertion|left:|right:' "$log" | head -n 60 | sed 's/^/     | /'
}
run "$A"
[ "$QUICK" = yes ] || run "$B"
finish
