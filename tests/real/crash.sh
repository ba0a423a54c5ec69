#!/bin/bash
# kill -9, again and again, at random moments, of the server and of the client's daemon, while a
# witness writes down outside the mount what was acknowledged. After each kill everything
# acknowledged must be there, on both mounts.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
[ "$QUICK" = no ] && rounds=60 || rounds=5
log=$WORK/witness.log
seed=${SEED:-$RANDOM}
mkdir -p "$A/crash"

moment() { sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"; }

server_round() {
    within 300 "$TOOLS/witness" run "$A/crash" "$log" --seconds 5 --seed "$1" & local witness=$!
    sleep 1; moment
    kill_server; moment
    start_server && wait $witness
}

client_round() {
    within 120 "$TOOLS/witness" run "$A/crash" "$log" --seconds 30 --seed "$1" \
        --until-error & local witness=$!
    sleep 1; moment
    kill_mount "$A" && mount_a && wait $witness
}

both_round() {
    within 120 "$TOOLS/witness" run "$A/crash" "$log" --seconds 30 --seed "$1" \
        --until-error & local witness=$!
    sleep 1; moment
    local server; server=$(server_pid)
    kill -9 "$(mount_pid "$A")" "$server"
    # A loaded machine takes a moment to end it, and until then it is "running already".
    while kill -0 "$server" 2> /dev/null; do sleep 0.05; done
    start_server && within 30 "$RIALTO" umount --lazy --dir "$CELL" "$A" && mount_a && wait $witness
}

for round in $(seq "$rounds"); do
    case $((round % 3)) in
        1) all=--all; check "round $round: server killed, work goes on (seed $seed)" server_round \
            $((seed + round)) ;;
        2) all=; check "round $round: client killed and mounted again (seed $seed)" client_round \
            $((seed + round)) ;;
        0) all=; check "round $round: both killed (seed $seed)" both_round $((seed + round)) ;;
    esac || break
    check "round $round: nothing is lost, seen from A" within 300 "$TOOLS/witness" check $all \
        "$A/crash" "$log" || break
    check "round $round: nothing is lost, seen from B" within 300 "$TOOLS/witness" check $all \
        "$B/crash" "$log" || break
done
# What the directory under a mount acknowledges was not acknowledged by the mount.
bare_round() {
    within 120 "$TOOLS/witness" run "$A/crash" "$log" --seconds 30 --seed "$1" \
        --until-error & local witness=$!
    sleep 1
    within 30 "$RIALTO" umount --lazy --dir "$CELL" "$A" && wait $witness && rm -rf "$A/crash" &&
        mount_a
}
if [ "$failures" -eq 0 ]; then
    check "the witness stops when its mount is taken away (seed $seed)" bare_round "$seed"
    check "what it wrote down is there" within 300 "$TOOLS/witness" check "$A/crash" "$log"
fi
note "$(grep -c '^E' "$log") changes were acknowledged in all"
[ "$failures" -eq 0 ] || cp "$log" "${TMPDIR:-/var/tmp}/rialto-witness.log"
rm -rf "$A/crash"
finish
