#!/bin/bash
# check.sh [--soak] [PART...]: everything that guards a change, part by part, with the time of each.
# --soak: long forms.
# The last line says how many tests passed, failed and were skipped in all; the exit code is 1 if
# any failed. A part or a test that cannot run on this machine prints a line "SKIP part: reason": it
# counts as skipped and never as passed, and all of them are listed at the end. With CI=true a skip
# is a failure, except for what scripts/ci-skips says that a CI machine cannot run. Lines with FLAKY
# before it name tests of crates that passed only when they were run again (scripts/unit.sh); with
# --soak that is a failure. At the end the failed parts are told once more, in at most 40 lines of
# their logs, because some places show only the last lines of a run.
set -uo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}

soak=no
[ "${1:-}" != --soak ] || { soak=yes; shift; }
wanted=("$@")
logs=$(mktemp -d -t rialto-check.XXXXXX)
trap 'rm -rf "$logs"' EXIT
passed=0 failed=0 skipped=0 times=() broken=()

# A full disk stops tests in the middle, and then whoever waits for them.
needs_room() { # needs_room DIR GIB
    local free
    mkdir -p "$1" && free=$(df --output=avail -k "$1" | tail -n 1)
    [ "${free:-0}" -ge $(($2 << 20)) ] && return
    echo "FAIL room: $1 has $((${free:-0} >> 20)) GiB free, and the tests need $2:" \
        "remove old build output or leftovers of tests"
    exit 1
}
target=${CARGO_TARGET_DIR:-$PWD/target}
[ -d "$target/debug/deps" ] && needs_room "$target" 8 || needs_room "$target" 24
needs_room "$logs" 4

chosen() {
    [ ${#wanted[@]} -eq 0 ] && return 0
    local one
    for one in "${wanted[@]}"; do [ "$one" = "$1" ] && return 0; done
    return 1
}

# Runs a part; its status and its seconds are written beside its log.
run() { # run NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    "$@" 2>&1 | tee "$logs/$name"
    echo "${PIPESTATUS[0]} $((SECONDS - start))" > "$logs/$name.end"
}

# Counts cargo's summaries and our own PASS and FAIL lines. A part that fails without counting a
# failure is one.
count() { # count NAME
    local name=$1 log=$logs/$1 good bad left_out status seconds
    read -r status seconds < "$log.end"
    good=$(awk '/^test result:/ { n += $4 } /^PASS / { n++ } END { print n + 0 }' "$log")
    bad=$(awk '/^test result:/ { n += $6 } /^FAIL / { n++ } END { print n + 0 }' "$log")
    # A test of a crate may say it several times, and its program counts it as passed.
    left_out=$(grep '^SKIP ' "$log" | sort -u | wc -l)
    good=$((good - $(grep '^SKIP unit: ' "$log" | sort -u | wc -l)))
    # A part that has no tests of its own (format, lint) is itself one.
    [ $((good + bad + left_out)) -gt 0 ] || good=$((status == 0))
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left_out))
    [ "$bad" -eq 0 ] || broken+=("$name")
    times+=("$(printf '%-12s %5d s  %6d passed  %3d failed  %3d skipped' \
        "$name" "$seconds" "$good" "$bad" "$left_out")")
}

part() { # part NAME COMMAND...
    chosen "$1" || return 0
    printf '\n=== %s: %s\n' "$1" "${*:2}"
    run "$@"
    count "$1"
}

# Parts that run beside the next ones. Those of one chain run one after the other: most tests on
# mounts wait most of the time, and compilers and simulators do not.
beside=()
part_beside() { # part_beside CHAIN NAME COMMAND...
    local chain=$1
    shift
    chosen "$1" || return 0
    beside+=("$1")
    printf '%q ' "$@" >> "$logs/.chain.$chain"
    printf '\n' >> "$logs/.chain.$chain"
}
begin_beside() {
    local chain
    for chain in "$logs"/.chain.*; do
        [ -e "$chain" ] || continue
        while read -r line; do eval "run $line" > /dev/null; done < "$chain" &
    done
}
end_beside() {
    local name
    wait
    for name in "${beside[@]}"; do
        printf '\n=== %s\n' "$name"
        cat "$logs/$name"
        count "$name"
    done
    beside=()
    rm -f "$logs"/.chain.*
}

# Prints the last lines of the log of each part that failed, and behind them those that name a
# failure: these are to be among the last lines of the run. Lines of the simulator's histories are
# long, and are cut.
tell_failed() {
    local name ends names each words='^FAIL|^test .*FAILED|VIOLATION|^seed [0-9]+:|panicked'
    [ ${#broken[@]} -gt 0 ] || return 0
    each=$((40 / ${#broken[@]}))
    for name in "${broken[@]}"; do
        names=$(grep -a -E "$words" "$logs/$name" | head -n $((each > 30 ? each - 15 : each / 2)))
        ends=$((each - $(printf '%s' "$names" | grep -c '')))
        printf '%s\n' "--- $name failed:"
        {
            tail -n $((ends > 15 ? 15 : ends)) "$logs/$name"
            [ -z "$names" ] || printf '%s\n' "$names"
        } | cut -c 1-300
        case $name in new-*) echo "$seeds_line" ;; esac
    done
}

if [ $soak = yes ]; then
    # What the crates' tests take their number of cases, histories and entries from.
    export PROPTEST_CASES=${PROPTEST_CASES:-20000} SEEDS=${SEEDS:-20000} \
        RIALTO_ENTRIES=${RIALTO_ENTRIES:-10000000}
    export STRANGER_CALLS=${STRANGER_CALLS:-1000000} SILENT_SECS=${SILENT_SECS:-60} \
        POWER_CUTS=${POWER_CUTS:-4000}
    export UNIT_AGAIN=no
    # Without the features that tests of other crates ask for: packages and images are made of it.
    build=(--release -p rialto -p cli -p sim -p rialto-capi -p rialto-client) built=$target/release
    seeds=0..200000 volume_seeds=0..10000 release_seeds=0..100 fuzz=(600) real=()
    standby_seeds=0..10000 new_sessions=20000 new_volumes=1000 new_standbys=5000
else
    # With profile and features of the tests, so that everything is built once.
    build=(--workspace) built=$target/debug
    seeds=0..5000 volume_seeds=0..120 release_seeds=0..2 fuzz=(--plain) real=(--quick)
    standby_seeds=0..1500 new_sessions=2000 new_volumes=60 new_standbys=300
fi
# Beside the fixed inputs each state of the code gets new ones, which its hash gives: a run can be
# repeated, here and on another machine. The long forms take others each time.
code=(crates fuzz tests scripts Cargo.toml Cargo.lock)
if [ $soak = yes ]; then
    new=$((0x$(od -An -N6 -tx1 /dev/urandom | tr -d ' ')))
else
    new=$((0x$(git ls-tree HEAD "${code[@]}" 2> /dev/null | sha256sum | cut -c 1-12)))
fi
new=${NEW_SEEDS:-$new}
# For the real parts, the fuzzers and the property tests.
[ $soak = yes ] || export RIALTO_SEED=$new PROPTEST_RNG_SEED=$new
seeds_line="new inputs begin at $new; NEW_SEEDS=$new scripts/check.sh [PART...] repeats them"
echo "$seeds_line"

part format cargo fmt --all --check
part lint cargo clippy --workspace --all-targets --locked -- -D warnings
part deny scripts/deny.sh
# Libraries too: librialto.so is a dependency of no program.
part build cargo build "${build[@]}" --locked --lib --bins --examples
on_mounts=(tests/real/run.sh "${real[@]}" --bin "$built")
part_beside 1 own-1 "${on_mounts[@]}" own-1
part_beside 2 own-2 "${on_mounts[@]}" own-2
begin_beside
part unit scripts/unit.sh
end_beside
part_beside 1 guide tests/guide.sh "${real[@]}" --bin "$built"
part_beside 1 sim nice "$built/sim" --kind sessions --seeds $seeds
part_beside 1 volumes nice "$built/sim" --kind volumes --seeds $volume_seeds
part_beside 1 standbys nice "$built/sim" --kind standbys --seeds $standby_seeds
part_beside 1 new-sim nice "$built/sim" --kind sessions --seeds $new..$((new + new_sessions))
part_beside 1 new-vol nice "$built/sim" --kind volumes --seeds $new..$((new + new_volumes))
part_beside 1 new-standbys nice "$built/sim" --kind standbys --seeds $new..$((new + new_standbys))
part_beside 1 release nice "$built/sim" --kind release --sites 240 --seeds $release_seeds
part_beside 2 shared-1 "${on_mounts[@]}" shared-1
begin_beside
part shared-2 "${on_mounts[@]}" shared-2
end_beside
# The long form takes all processors, which tests on mounts need.
part fuzz nice fuzz/run.sh "${fuzz[@]}"
[ $soak = no ] || part strangers cargo run --release --locked -p server --example strangers -- \
    --check
[ $soak = no ] || part kills env RIALTO_KILLS=1000 cargo test --release --locked \
    -p rialto-client --test all appends_are
[ $soak = no ] || part outlive "${on_mounts[@]}" outlive
[ $soak = no ] || part quorum "${on_mounts[@]}" quorum
[ $soak = no ] || part packages tests/packages.sh "$built"
[ $soak = no ] || part clean tests/packages.sh --clean "$built"
[ $soak = no ] || part containers tests/containers.sh "$built"
[ $soak = no ] || part kernels tests/kernels.sh --bin "$built"
[ $soak = no ] || part fresh tests/fresh.sh

printf '\n'
printf '%s\n' "${times[@]}"
grep -h '^FLAKY ' "$logs"/*
grep -h '^SKIP ' "$logs"/* | sort -u | tee "$logs/.skipped"
if [ "${CI:-}" = true ]; then
    # Comment lines name the reasons.
    grep -v -E -f <(grep -v -e '^#' -e '^$' scripts/ci-skips) "$logs/.skipped" > "$logs/.must_run"
    while read -r line; do
        echo "FAIL skipped though CI can run it: ${line#SKIP }"; done < "$logs/.must_run"
    failed=$((failed + $(wc -l < "$logs/.must_run")))
fi
tell_failed
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
