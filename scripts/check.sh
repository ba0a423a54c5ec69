#!/bin/bash
# check.sh [--soak] [PART...]: everything that guards a change, part by part, with the time of each. --soak: long forms.
# The last line says how many tests passed and failed in all; the exit code is 1 if any did not pass. Lines with FLAKY before it name tests of crates that
# passed only when they were run again (scripts/unit.sh); with --soak that is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

soak=no
[ "${1:-}" != --soak ] || { soak=yes; shift; }
wanted=("$@")
logs=$(mktemp -d -t rialto-check.XXXXXX)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 times=()

chosen() {
    [ ${#wanted[@]} -eq 0 ] && return 0
    local one
    for one in "${wanted[@]}"; do [ "$one" = "$1" ] && return 0; done
    return 1
}

# Counts cargo's summaries and our own PASS and FAIL lines. A part that fails without counting a failure is one.
part() {
    local name=$1 log=$logs/$1 start=$SECONDS good bad status
    shift
    chosen "$name" || return 0
    printf '\n=== %s: %s\n' "$name" "$*"
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    good=$(awk '/^test result:/ { n += $4 } /^PASS / { n++ } END { print n + 0 }' "$log")
    bad=$(awk '/^test result:/ { n += $6 } /^FAIL / { n++ } END { print n + 0 }' "$log")
    # A part that has no tests of its own (format, lint) is itself one.
    [ $((good + bad)) -gt 0 ] || good=$((status == 0))
    [ $status -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + good)) failed=$((failed + bad))
    times+=("$(printf '%-8s %5d s  %6d passed  %3d failed' "$name" $((SECONDS - start)) "$good" "$bad")")
}

target=${CARGO_TARGET_DIR:-$PWD/target}
if [ $soak = yes ]; then
    # What the crates' tests take their number of cases, histories and entries from.
    export PROPTEST_CASES=${PROPTEST_CASES:-20000} SEEDS=${SEEDS:-20000} RIALTO_ENTRIES=${RIALTO_ENTRIES:-10000000}
    export UNIT_AGAIN=no
    seeds=0..200000 volume_seeds=0..10000 release_seeds=0..100 fuzz_seconds=600 real=()
else
    seeds=0..10000 volume_seeds=0..300 release_seeds=0..2 fuzz_seconds=8 real=(--quick)
fi

part format cargo fmt --all --check
part lint cargo clippy --workspace --all-targets --locked -- -D warnings
part unit scripts/unit.sh
part fuzz fuzz/run.sh $fuzz_seconds
part build cargo build --release --locked -p rialto -p sim --bins --examples
part sim "$target/release/sim" --kind sessions --seeds $seeds
part volumes "$target/release/sim" --kind volumes --seeds $volume_seeds
part release "$target/release/sim" --kind release --sites 240 --seeds $release_seeds
part real tests/real/run.sh "${real[@]}" --bin "$target/release"
[ $soak = no ] || part strangers cargo run --release --locked -p server --example strangers -- --check
[ $soak = no ] || part fresh tests/fresh.sh

printf '\n'
printf '%s\n' "${times[@]}"
cat "$logs"/* | grep '^FLAKY '
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
