#!/bin/sh
# Runs each fuzz target for SECONDS (default 30), beginning from the golden vectors of the protocol.
#
# usage: fuzz/run.sh [SECONDS] [TARGET...]
#
# cargo-fuzz and a nightly toolchain are needed. Where they are missing this says so and runs the same checks as property tests
# on mutated golden vectors instead, so that something is fuzzed everywhere.
set -eu
cd "$(dirname "$0")"

seconds=${1:-30}
[ $# -gt 0 ] && shift
case $seconds in
'' | *[!0-9]*) echo "usage: fuzz/run.sh [SECONDS] [TARGET...]" >&2; exit 2 ;;
esac
targets=${*:-header hello message call answer server_session client_session}

fall_back() {
    echo "fuzz: the fuzz targets did NOT run: $1" >&2
    echo "fuzz: running the property tests on mutated golden vectors instead" >&2
    cd ..
    PROPTEST_CASES=20000 exec cargo test -p dafs --lib -- mutated_vectors session_machines random_bytes
}
rustup toolchain list 2>/dev/null | grep -q '^nightly' || fall_back "no nightly toolchain (rustup toolchain install nightly)"
cargo +nightly fuzz --version >/dev/null 2>&1 || fall_back "no cargo-fuzz (cargo install cargo-fuzz)"

# Golden vectors as first inputs: "name head message payload" in hex becomes the bytes that a target expects.
# Of calls and answers the head is the procedure; the length of the payload and the payload itself go before the message.
seed() { # FAMILY TARGET
    mkdir -p "corpus/$2"
    while read -r name head message payload; do
        case $name in '' | '#'*) continue ;; esac
        case $2 in
        call | answer)
            [ "$head" = - ] && continue
            [ "$payload" = - ] && payload=
            hex=$head$(printf '%02x00' $((${#payload} / 2)))$payload$message ;;
        header) hex=$head ;;
        *) hex=$head$message ;;
        esac
        echo "$hex" | tr -d '\n-' | xxd -r -p >"corpus/$2/golden-$1-$name"
    done <"../crates/dafs/golden/$1.txt"
}
if command -v xxd >/dev/null; then
    seed calls call
    seed answers answer
    seed messages message
    seed messages header
    seed frames header
    seed hellos hello
else
    echo "fuzz: no xxd, so targets begin without the golden vectors" >&2
fi

failed=
for target in $targets; do
    echo "fuzz: $target for $seconds s"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -max_len=4096 -len_control=0 -print_final_stats=1 || failed="$failed $target"
done
[ -z "$failed" ] || { echo "fuzz: FAILED:$failed (inputs are in fuzz/artifacts)" >&2; exit 1; }
echo "fuzz: every target ran for $seconds s without a finding"
