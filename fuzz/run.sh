#!/bin/bash
# run.sh [SECONDS] [TARGET...]: runs each fuzz target for SECONDS (default 30), as many at once as
# there are processors.
# run.sh --inputs N [TARGET...]: runs each until it has tried N inputs.
# run.sh --plain: runs the same checks as property tests, which need nothing but the workspace: on
# random bytes and on changed golden vectors, PROPTEST_CASES of each (default 4000). Every change
# is checked like that: to build all targets again takes twelve minutes.
#
# Needs a nightly toolchain and cargo-fuzz, which `scripts/setup.sh soak` gets if they can be had.
# Where they are missing this says so and does what --plain does, so that something is fuzzed
# everywhere. What was built lies in the target directory, inputs that reach something new are kept
# in a cache outside the checkout and are the next run's first inputs.
#
# With RIALTO_SEED a run depends neither on an earlier one nor on the machine's speed: it begins
# with the planted inputs alone, keeps nothing, makes its random choices from that number, and tries
# as many inputs of a target as most machines try in SECONDS (in eight times SECONDS at most).
#
# No sanitizer: these decoders have no unsafe code (the compiler forbids it), and without one they
# run twice as often.
set -euo pipefail
cd "$(dirname "$0")"

plain() {
    cd ..
    PROPTEST_CASES=${PROPTEST_CASES:-4000} exec cargo test --locked --workspace --lib -- \
        fuzzing mutated_vectors session_machines random_bytes any_bytes any_text
}
seconds=${1:-30}
[ $# -eq 0 ] || shift
inputs=
case $seconds in
    --plain) plain ;;
    --inputs) inputs=${1:-} seconds=$inputs; [ $# -eq 0 ] || shift ;;
esac
case $seconds in '' | *[!0-9]*) sed -n '2,7s/^# //p' run.sh >&2; exit 2 ;; esac
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(basename -s .rs -a fuzz_targets/*.rs))
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests
built=${CARGO_TARGET_DIR:-$PWD/../target}/fuzz
PATH=$cache/cargo-fuzz/bin:$PATH

fall_back() {
    local target
    for target in "${targets[@]}"; do echo "SKIP fuzz: $target: $1"; done
    echo "fuzz: running their checks as property tests instead" >&2
    plain
}
command -v rustup > /dev/null || fall_back "there is no rustup to get a nightly toolchain with"
rustup toolchain list 2> /dev/null | grep -q '^nightly' ||
    fall_back "no nightly toolchain (rustup toolchain install nightly)"
command -v cargo-fuzz > /dev/null || fall_back "no cargo-fuzz (scripts/setup.sh test says why)"

corpus=$cache/fuzz/corpus seed=
if [ -n "${RIALTO_SEED:-}" ]; then
    corpus=$(mktemp -d -t rialto-fuzz.XXXXXX)
    trap 'rm -rf "$corpus"' EXIT
    # Not 0, which stands for a random one.
    seed=$((RIALTO_SEED % 2000000000 + 1))
fi
# Arguments of libFuzzer that end a run of target $1.
ends() {
    local each=125000
    [ -z "$inputs" ] || { echo "-runs=$inputs"; return; }
    [ -n "$seed" ] || { echo "-max_total_time=$seconds"; return; }
    case $1 in cell | *_session | inbox | tls) each=2500 ;; esac
    echo "-runs=$((each * seconds)) -max_total_time=$((8 * seconds))"
}
# First inputs.
# plant TARGET NAME: from standard input
plant() { mkdir -p "$corpus/$1" && cat > "$corpus/$1/$2"; }
# Golden vectors of the protocol: "name head message payload" in hex becomes the bytes that a target
# expects. Of calls and answers the head is the procedure; the length of the payload and the payload
# itself go before the message.
golden() { # golden FAMILY TARGET
    local name head message payload hex
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
        hex=${hex//-/}
        printf '%b' "$(sed 's/../\\x&/g' <<< "$hex")" | plant "$2" "golden-$1-$name"
    done < "../crates/dafs/golden/$1.txt"
}
golden calls call
golden answers answer
golden messages message
golden messages header
golden frames header
golden hellos hello
printf 'rialto partition\nversion 1\nid 00000000000000000000000000000007\n' |
    plant store_names format
printf '2a.1.f' | plant store_names body
printf '\7\0\0\0\0\0\0\0%b\1\0c\2\1\0\0\0\2\0\0\0fxy\0\1%b' "$(printf '\\0%.0s' {1..8})" \
    "$(printf '\\0%.0s' {1..7})" | plant cell_backup file
printf 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n' |
    plant etcd_answer chunks
printf 'HTTP/1.1 400 Bad\r\nContent-Length: 10\r\n\r\n{"code":3}' | plant etcd_answer refusal
printf 'joe:friends' | plant names group
printf '10.1.0.0/16' | plant names network
printf 'home.*\nhome.alice.backup' | plant names pattern
printf 'rlidwkaAH' | plant names rights
printf '\0\026\003\001\0\004\001\0\0\0' | plant tls noise
printf '\001\012\0\125\0' | plant tls hello
printf '\002some content' | plant tls records
printf 'RIALTOC3\11%b' "$(printf '\\0%.0s' {1..31})" | plant disk_cache empty-map
printf '7.2a.3' | plant disk_cache name
printf '%s = "%s"\n' name some.cell listen 127.0.0.1:7620 partition vicep socket server.sock |
    plant cell configuration
printf '36 35 0:44 / /mnt/with\\040space rw - fuse.rialto unix:/s rw' | plant cell mountinfo

echo "fuzz: building ${#targets[@]} targets"
cargo +nightly fuzz build --fuzz-dir . --sanitizer none --target-dir "$built"
programs=$built/$(rustc +nightly -vV | sed -n 's/^host: //p')/release

one() { # one TARGET: a line that begins with PASS or FAIL
    local target=$1 artifacts=$cache/fuzz/artifacts/$1 log tried status=0 start=$SECONDS
    log=$(mktemp)
    mkdir -p "$artifacts" "$corpus/$target"
    # shellcheck disable=SC2046 # they are words
    "$programs/$target" "$corpus/$target" $(ends "$target") -max_len=4096 \
        -len_control=0 ${seed:+-seed="$seed"} \
        -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 -artifact_prefix="$artifacts/" \
        > "$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        tried=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "PASS fuzz: $target: $tried inputs in $((SECONDS - start)) s"
    else
        echo "FAIL fuzz: $target (the input is in $artifacts)"
        tail -n 40 "$log" | sed 's/^/     | /'
    fi
    rm -f "$log"
    return $status
}
export -f one ends
export cache corpus seconds inputs seed programs
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'one {}'
