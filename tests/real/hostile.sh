#!/bin/bash
# Bad neighbours on the server's TCP port: garbage, spoiled copies of what real clients say, and a
# thousand connections that say nothing. The server lives, does not grow, and serves its real
# clients meanwhile.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
[ "$QUICK" = no ] && seconds=300 || seconds=10
address=$(tcp_address)
port=$((20000 + RANDOM % 10000))
# Much less than a second copy of the server, and more than its caches take by themselves.
growth_kib_max=65536

resident_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$(server_pid)/status"; }
real_work() { # a file made, synced, read on the other mount and removed
    local file=hostile-$RANDOM
    echo "$file" > "$A/$file" && sync "$A/$file" && [ "$(cat "$B/$file")" = "$file" ] &&
        rm "$A/$file"
}
export -f real_work

record() { # what a real client says over TCP, kept for spoiling
    "$TOOLS/hostile" record "127.0.0.1:$port" "$address" "$WORK/said" & local recorder=$!
    mkdir -p "$WORK/C"
    sleep 0.3
    within 60 "$RIALTO" mount --daemon --dir "$CELL" "127.0.0.1:$port" "$WORK/C" &&
        cp -r /etc/apt "$WORK/C/hostile-copy" && ls -lR "$WORK/C/hostile-copy" > /dev/null &&
        rm -rf "$WORK/C/hostile-copy" &&
        within 60 "$RIALTO" umount --dir "$CELL" "$WORK/C"
    local status=$?
    kill $recorder
    return $status
}

throw() {
    within $((seconds + 60)) "$TOOLS/hostile" throw "$address" --seconds "$seconds" \
        --seed "$RANDOM" $(printf -- '--recorded %s ' "$WORK"/said.*)
}

ulimit -n 4096
pid=$(server_pid)
check "a real client is recorded" within 120 bash \
    -c "$(declare -f record within); RIALTO='$RIALTO' TOOLS='$TOOLS' WORK='$WORK' CELL='$CELL'
        port=$port address='$address'; record"
# Once without counting, so that what is allocated once does not look like growth.
seconds=3 check "garbage, to warm up" throw
before=$(resident_kib)
throw > "$WORK/throw.log" 2>&1 & thrower=$!
check "real work goes on beside garbage" within 60 bash \
    -c 'for n in 1 2 3 4 5; do real_work || exit 1; done'
wait $thrower && pass "garbage: $(tail -n 1 "$WORK/throw.log")" ||
    fail "garbage: $(tail -n 1 "$WORK/throw.log")"
after=$(resident_kib)
[ $((after - before)) -le $growth_kib_max ] && pass "the server grew by $((after - before)) KiB" ||
    fail "the server grew by $((after - before)) KiB, more than $growth_kib_max"

"$TOOLS/hostile" silent "$address" --count 1000 --seconds $((seconds + 20)) > "$WORK/silent.log" \
    2>&1 & silent=$!
for _ in $(seq 100); do grep -q ready "$WORK/silent.log" && break; sleep 0.1; done
grep -q ready "$WORK/silent.log" && pass "1,000 connections say nothing" ||
    fail "1,000 connections: $(cat "$WORK/silent.log")"
check "real work goes on beside them" within 60 bash \
    -c 'for n in 1 2 3 4 5; do real_work || exit 1; done'
mkdir -p "$WORK/D"
check "a new client comes in beside them" within 60 "$RIALTO" mount --daemon \
    --dir "$CELL" "$address" "$WORK/D"
check "and leaves" within 60 "$RIALTO" umount --dir "$CELL" "$WORK/D"
kill $silent 2>/dev/null
[ "$(server_pid)" = "$pid" ] && kill -0 "$pid" && pass "it is still the same server" ||
    fail "the server was restarted"
finish
