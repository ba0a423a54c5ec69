#!/bin/bash
# unit.sh: the tests of all crates, a few programs at once: most of them wait most of the time, for clocks, disks and each other.
#
# Cargo builds and starts them one after the other, through this file again ("runner"), which waits for one of the places, leaves the program behind in
# it and lets cargo go on. Each program's output is printed in one piece when it is through. Examples in documentation run last.
# UNIT_PLACES: how many at once [default: 3]. Arguments go to cargo.
set -uo pipefail
places=${UNIT_PLACES:-3}

run_one() { # run_one PROGRAM ARGUMENT...
    local log status
    log=$(mktemp "$UNIT_DIR/log.XXXXXX")
    "$@" > "$log" 2>&1 < /dev/null
    status=$?
    {
        flock 9
        printf '\n     Ran %s\n' "$1"
        cat "$log"
        if [ $status -ne 0 ]; then
            echo "$1" >> "$UNIT_DIR/failed"
            # One that dies says nothing itself.
            grep -q '^test result: FAILED' "$log" || echo "FAIL unit: $1 ended with $status"
        fi
    } 9> "$UNIT_DIR/printing"
    rm -f "$log"
    echo >&8
}

if [ -n "${UNIT_DIR:-}" ]; then
    exec 8<> "$UNIT_DIR/places"
    read -r -u 8
    run_one "$@" &
    exit 0
fi

cd "$(dirname "$0")/.."
UNIT_DIR=$(mktemp -d -t rialto-unit.XXXXXX)
export UNIT_DIR
trap 'rm -rf "$UNIT_DIR"' EXIT
mkfifo "$UNIT_DIR/places"
exec 8<> "$UNIT_DIR/places"
for _ in $(seq $places); do echo >&8; done
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')

status=0
env "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/unit.sh" cargo test --workspace --tests --locked --no-fail-fast "$@" || status=1
for _ in $(seq $places); do read -r -u 8; done
[ ! -e "$UNIT_DIR/failed" ] || status=1
cargo test --workspace --doc --locked --no-fail-fast || status=1
exit $status
