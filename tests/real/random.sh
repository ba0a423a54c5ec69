#!/bin/bash
# Random reads, writes, maps, cuts and holes against a copy in memory: on one mount, and on both
# with hand-over by locks and by closing; then several processes that contend for locks.
. "$(dirname "$0")/../lib/real.sh"
if [ "$QUICK" = no ]; then
    one=1000000 two=1000000 seconds=120; else one=20000 two=10000 seconds=5; fi
seed=${SEED:-$RANDOM}
mkdir -p "$A/random"

check "one mount, $one steps, seed $seed" within 7200 "$TOOLS/exercise" random "$A/random/one" \
    --ops "$one" --seed "$seed"
check "one mount, large file, seed $seed" within 7200 "$TOOLS/exercise" random "$A/random/large" \
    --ops $((one / 10)) --size $((8 << 20)) --seed "$seed"
check "the second mount over TCP, seed $seed" within 7200 "$TOOLS/exercise" random "$B/random/tcp" \
    --ops $((one / 5)) --seed "$seed"
check "two mounts with locks, $two steps, seed $seed" within 7200 "$TOOLS/exercise" random \
    "$A/random/locked" "$B/random/locked" --ops "$two" --turn 8 --seed "$seed"
check "two mounts by closing, $((two / 5)) steps, seed $seed" within 7200 "$TOOLS/exercise" random \
    "$A/random/closed" "$B/random/closed" --ops $((two / 5)) --seed "$seed" --handover close

contend() {
    local pids=() pid bad=0 dir number=0
    for dir in "$A" "$B" "$A" "$B"; do
        number=$((number + 1))
        "$TOOLS/exercise" contend "$dir/random/contended${1:-}" --seconds "$seconds" \
            --seed $number "$@" & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
    return $bad
}
check "four processes contend for fcntl locks" contend
check "four processes contend for flock locks" contend --flock
rm -rf "$A/random"
finish
