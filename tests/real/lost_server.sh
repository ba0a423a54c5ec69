#!/bin/bash
# A server of a cell is lost for good, as a process that is killed, with a volume that programs use:
# a read-only copy elsewhere becomes the read-write volume, and the programs go on. The lost server
# comes back and has nothing to say about it.
. "$(dirname "$0")/../lib/real.sh"
three_servers lost
vos() { within 90 "$RIALTO" vos --dir "$A" "$@"; }

check "a volume on the second" vos create two vicep work
check "with sites on the others" vos addsite three vicep work
check "two of them" vos addsite "$(uname -n)" vicep work

tree=$base/mount/tree
mkdir -p "$tree"
check "it is mounted" within 60 "$RIALTO" mount --daemon --dir "$A" --volume work \
    "unix:$A/server.sock" "$tree"
printf 'released\n' > "$tree/kept"
head -c 300000 /dev/urandom > "$tree/large"
: > "$tree/log"
sync -f "$tree"
sums=$(cd "$tree" && sha256sum kept large)
check "and released" says "Released volume work successfully" 0 vos release work
printf 'lost\n' > "$tree/lost" && python3 -c 'import os, sys
os.fsync(os.open(sys.argv[1], os.O_RDONLY))' "$tree/lost"

check "a volume whose server answers is not lost" says "'vos move'" 1 \
    vos convertROtoRW three vicep work
kill -9 "$(head -n 1 "$B/server.pid")"
# A program writes on and on, each line in time or not at all.
python3 - "$tree/log" "$base/stop" > "$base/writer" 2>&1 << 'WRITER' &
import os, sys, time
log, stop = sys.argv[1:]
file = os.open(log, os.O_WRONLY | os.O_APPEND)
written, failed = 0, 0
while not os.path.exists(stop):
    os.write(file, b'%d\n' % written)
    try:
        os.fsync(file)
    except OSError as error:
        failed += 1
        print(error)
    written += 1
    time.sleep(0.05)
print('written', written, 'failed', failed)
WRITER
writer=$!
check "where there is no copy" says "no read-only site" 1 vos convertROtoRW two vicep work
check "the wrong partition is named" says "its copy there is on" 1 \
    vos convertROtoRW three vicepz work
check "only checked" says "would" 0 vos convertROtoRW three vicep work -dryrun
check "its copy takes over" says "Volume work is read-write on server three" 0 \
    vos convertROtoRW three vicep work
check "which is done once" says "has the read-write volume" 1 vos convertROtoRW three vicep work
goes_on() {
    local before after _
    before=$(stat -c %s "$tree/log")
    for _ in $(seq 100); do
        after=$(stat -c %s "$tree/log")
        [ "$after" -gt "$before" ] && return 0
        sleep 0.1
    done
    return 1
}
check "the program goes on" goes_on
touch "$base/stop"
wait $writer
# What it had not made stable when the server died is sent again; the loss of a change of status
# is reported at most once.
check "without a failure but the reported loss" sh -c "grep -q '^written [0-9]* failed [01]\$' \
    '$base/writer' || { cat '$base/writer'; false; }"
check "what was released is there" test "$(cd "$tree" && sha256sum kept large)" = "$sums"
check "what the lost server alone had is not" test ! -e "$tree/lost"
check "the copies follow it" says "Released volume work successfully" 0 vos release work

check "the lost server comes back" within 90 "$RIALTO" up --no-mount --dir "$B"
printf 'more\n' > "$tree/more"
check "which nobody sees" test "$(cat "$tree/kept" "$tree/more")" = "$(printf 'released\nmore')"
check "its changes can still be read there" sh -c "'$RIALTO' vos --dir '$A' dump \
    -server two -id work -file '$base/rest' && test -s '$base/rest'"
check "and removed" vos zap two vicep work
check "then the volume comes back" says "Volume work moved to two" 0 vos move work -toserver two
check "with all that it has" test "$(cat "$tree/kept" "$tree/more")" = "$(printf 'released\nmore')"
finish
