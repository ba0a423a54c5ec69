#!/bin/bash
# unit.sh: the tests of all crates, a few programs at once: most of them wait most of the time, for
# clocks, disks and each other.
#
# Cargo builds and starts them one after the other, through this file again ("runner"), which waits
# for one of the places, leaves the program behind in it and lets cargo go on. Each program's output
# is printed in one piece when it is through. Examples in documentation run last.
# A test that fails is run again, by itself, twice at most. One that passes then is flaky: its
# failure is printed whole, and named with its reason in a line that begins with FLAKY. That is a
# fault to be found (tests/flaky.md), but it says nothing of the change that is looked at. More than
# three of them in a run are failures.
# UNIT_PLACES: how many at once [default: 3]. UNIT_AGAIN: "no" runs nothing again. Arguments go to
# cargo.
set -uo pipefail
places=${UNIT_PLACES:-3}
flaky_max=3

# The tests that the program says failed, if it lived to say so.
failures() { # failures LOG
    awk '/^failures:$/ { names = "" }
        /^    [A-Za-z0-9_:]+$/ { names = names $1 "\n" }
        /^test result: FAILED/ { printf "%s", names }' "$1"
}

# Where and why a test panicked, in one line of at most 300 characters.
why() { # why LOG TEST
    awk -v test="$2" '/^---- / { its = $2 == test }
        its && sub(/^thread .* panicked at /, "") { place = $0; getline; print place " " $0; exit }
        ' "$1" | cut -c 1-300
}

# Whether all that failed passes by itself; prints what is to be said of it.
again() { # again LOG PROGRAM ARGUMENT...
    local log=$1 names name count try
    shift
    names=$(failures "$log")
    [ "${UNIT_AGAIN:-yes}" = yes ] && [ -n "$names" ] || return 1
    count=$(wc -l <<< "$names")
    [ "$count" -le $flaky_max ] || return 1
    for name in $names; do
        for try in 1 2 failed; do
            [ $try != failed ] || return 1
            "$@" "$name" --exact > "$log.again" 2>&1 < /dev/null &&
                grep -q '^test result: ok. 1 passed' "$log.again" && break
        done
    done
    for name in $names; do
        echo "FLAKY unit: $name (${1##*/}) failed, and passed by itself: $(why "$log" "$name")"
    done | tee -a "$UNIT_DIR/flaky"
    awk -v again="$count" '/^test result: FAILED/ {
        printf "test result: ok. %d passed; 0 failed; %d of them when run again\n",
            $4 + again, again
    }' "$log"
}

run_one() { # run_one PROGRAM ARGUMENT...
    local log status said
    log=$(mktemp "$UNIT_DIR/log.XXXXXX")
    "$@" > "$log" 2>&1 < /dev/null
    status=$?
    if [ $status -ne 0 ] && said=$(again "$log" "$@"); then
        sed -i '/^SKIP /!s/^/| /' "$log"
        echo "$said" >> "$log"
        status=0
    fi
    {
        flock 9
        printf '\n     Ran %s%s\n' "$1" "${RIALTO_KERNEL:+ with RIALTO_KERNEL=$RIALTO_KERNEL}"
        cat "$log"
        if [ $status -ne 0 ]; then
            echo "$1" >> "$UNIT_DIR/failed"
            # One that dies says nothing itself.
            grep -q '^test result: FAILED' "$log" || echo "FAIL unit: $1 ended with $status"
        fi
    } 9> "$UNIT_DIR/printing"
    rm -f "$log" "$log.again"
    echo >&8
}

if [ -n "${UNIT_DIR:-}" ]; then
    exec 8<> "$UNIT_DIR/places"
    read -r -u 8
    # Tests of operations on several servers wait nearly all the time.
    case $PWD in */crates/vos) export RUST_TEST_THREADS=6 ;; esac
    run_one "$@" &
    # The tests of mounts run on mounts of each kind.
    case ${1##*/} in
        kernel-*)
            read -r -u 8
            RIALTO_KERNEL=flat run_one "$@" --skip sweeps:: --skip transport:: &
            read -r -u 8
            RIALTO_KERNEL=uring run_one "$@" --skip sweeps:: &
            ;;
    esac
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
env "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/unit.sh" cargo test --workspace --tests --locked \
    --no-fail-fast "$@" || status=1
for _ in $(seq $places); do read -r -u 8; done
[ ! -e "$UNIT_DIR/failed" ] || status=1
if [ -e "$UNIT_DIR/flaky" ] && [ "$(wc -l < "$UNIT_DIR/flaky")" -gt $flaky_max ]; then
    echo "FAIL unit: more than $flaky_max tests are flaky"
    status=1
fi
cargo test --workspace --doc --locked --no-fail-fast || status=1
exit $status
