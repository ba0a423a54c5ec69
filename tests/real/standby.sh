#!/bin/bash
# A volume has a standby, and its server is killed while programs use it: they go on without an
# error, and all that was synced is there. The killed server comes back as a standby, and takes the
# volume back by command. Then once with an asynchronous standby.
. "$(dirname "$0")/../lib/real.sh"
base=$WORK/standby
mkdir -p "$base"
A=$base/a B=$base/b C=$base/c
end() {
    touch "$base/stop"
    for dir in "$base"/*/; do
        within 30 "$RIALTO" umount --lazy --dir "$A" "$dir/tree" > /dev/null 2>&1; done
    # The first one has the mount, which may have changes for the others; it stays as long as that.
    for dir in "$A" "$C" "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done
}
trap end EXIT
vos() { within 120 "$RIALTO" vos --dir "$A" "$@"; }
field() {
    python3 -c 'import json, sys
found = [json.loads(line) for line in sys.stdin]
print(eval(sys.argv[1]))' "$1"
}
# The server of the read-write volume, as the database says.
home_of() {
    vos listvldb "$1" --json |
        field '[s["server"] for s in found[0]["sites"] if s["kind"] == "RW"][0]'
}
is_at() { test "$(home_of "$1")" = "$2"; }
# in_step VOLUME SERVER: within a minute or two it may take over.
in_step() {
    local _
    for _ in $(seq 240); do
        vos listvldb "$1" --json 2> /dev/null | field '[s["epoch"] for s in found[0]["sites"]
            if s["server"] == "'"$2"'" and s["kind"] == "SB"] == [1]' 2> /dev/null |
            grep -q True && return 0
        sleep 0.5
    done
    return 1
}
kill_server() { kill -9 "$(head -n 1 "$1/server.pid")"; }

check "the first server" within 90 "$RIALTO" up --no-mount --dir "$A" --cell standby.test \
    --listen 127.0.0.1:0
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
check "a second joins it" within 90 "$RIALTO" up --dir "$B" --join "$address" --keys "$A/keys" \
    --server two
check "and a third" within 90 "$RIALTO" up --dir "$C" --join "$address" --keys "$A/keys" \
    --server three
check "a volume on the second" vos create two vicep work
tree=$base/mount/tree
mkdir -p "$tree"
check "it is mounted" within 60 "$RIALTO" mount --daemon --dir "$A" --volume work \
    "unix:$A/server.sock" "$tree"
head -c 300000 /dev/urandom > "$tree/before"
check "its own server is no standby" says "has the read-write volume" 1 \
    vos addstandby two vicep work
check "only checked" says "would be done" 0 vos addstandby three vicep work -dryrun
check "a standby" says "is in step" 0 vos addstandby -server three -partition vicep -id work -sync
check "is one already" says "is in step" 0 vos addstandby three vicep work
check "is shown" says "Standby     three" 0 vos examine work
check "a move does not go there" says "failover" 1 vos move work -toserver three

# Makes files, and notes each in the list when it is synced; a database takes rows beside them.
cat > "$base/writer.py" << 'WRITER'
import hashlib, os, sqlite3, sys, time
tree, listed, stop = sys.argv[1:]
longest, number = 0.0, 0
rows = sqlite3.connect(os.path.join(tree, 'rows.db'), timeout=100)
rows.execute('pragma synchronous=full')
rows.execute('create table if not exists rows (n integer)')
first = rows.execute('select count(*) from rows').fetchone()[0]
with open(listed, 'w') as log:
    while not os.path.exists(stop):
        began = time.monotonic()
        body = os.urandom(2000 + number % 7000)
        name = 'file%06d' % number
        file = os.open(os.path.join(tree, name + '.new'), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        assert os.write(file, body) == len(body)
        os.fsync(file)
        os.close(file)
        os.rename(os.path.join(tree, name + '.new'), os.path.join(tree, name))
        if number % 10 == 9:
            os.unlink(os.path.join(tree, 'file%06d' % (number - 5)))
            log.write('gone file%06d\n' % (number - 5))
        directory = os.open(tree, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        rows.execute('insert into rows values (?)', (number,))
        rows.commit()
        log.write('%s %s\n' % (name, hashlib.sha256(body).hexdigest()))
        log.flush()
        number += 1
        longest = max(longest, time.monotonic() - began)
count = rows.execute('select count(*) from rows').fetchone()[0] - first
assert count == number, (count, number)
print('written %d, longest %.1f s' % (number, longest))
WRITER
cat > "$base/compare.py" << 'COMPARE'
import hashlib, os, sys
tree, listed = sys.argv[1:]
wanted = {}
for line in open(listed):
    first, second = line.split()
    if first == 'gone':
        del wanted[second]
    else:
        wanted[first] = second
for name, digest in wanted.items():
    found = hashlib.sha256(open(os.path.join(tree, name), 'rb').read()).hexdigest()
    assert found == digest, name
extra = {one for one in os.listdir(tree) if one.startswith('file')} - set(wanted)
assert not extra, extra
print(len(wanted), 'files are there')
COMPARE
write_on() {
    rm -f "$base/stop" "$tree"/file*
    : > "$base/listed"
    python3 "$base/writer.py" "$tree" "$base/listed" "$base/stop" > "$base/writer" 2>&1 &
    writer=$!
}
goes_on() {
    local before _
    before=$(wc -l < "$base/listed")
    for _ in $(seq 900); do
        [ "$(wc -l < "$base/listed")" -gt $((before + 5)) ] && return 0
        sleep 0.1
    done
    return 1
}
# The writer ended without an error, and no call took a minute.
ended_well() {
    touch "$base/stop"
    wait "$writer" || { cut -c1-300 "$base/writer" | tail -n 5; return 1; }
    cat "$base/writer"
    python3 -c 'import re, sys
assert float(re.search(r"longest ([0-9.]+) s", open(sys.argv[1]).read()).group(1)) < 60' \
        "$base/writer"
}
all_there() { within 120 python3 "$base/compare.py" "$tree" "$base/listed"; }

sum=$(sha256sum < "$tree/before")
write_on
check "programs write" goes_on
kill_server "$B"
check "they go on when its server is killed" goes_on
check "at the standby" is_at work three
check "without an error" ended_well
note "$(cat "$base/writer")"
check "all that was synced is there" all_there
check "and what was there before" test "$(sha256sum < "$tree/before")" = "$sum"
check "the killed server comes back" within 90 "$RIALTO" up --no-mount --dir "$B"
check "as a standby" in_step work two
write_on
check "programs write again" goes_on
check "the volume goes back by command" says "read-write on server two now" 0 vos failover work \
    -toserver two
check "and they go on" goes_on
check "without an error, too" ended_well
note "$(cat "$base/writer")"
check "with all that was written" all_there
check "the other is a standby again" in_step work three

check "it is asynchronous from now on" says "(async)" 0 vos addstandby three vicep work -async
write_on
check "programs write on" goes_on
touch "$base/stop"
wait "$writer"
behind() { vos examine work --json | field 'found[0]["standbys"][0]["behind"]'; }
caught_up() { local _; for _ in $(seq 100); do test "$(behind)" = 0 && return 0; sleep 0.1; done
    return 1; }
check "the standby catches up" caught_up
kill_server "$B"
check "it takes over" within 90 sh -c "until echo later > '$tree/later'; do sleep 0.2; done"
check "at the third server" is_at work three
check "with all that it had" all_there
check "the killed server is back" within 90 "$RIALTO" up --no-mount --dir "$B"
check "and is a standby no more" says "Removed standby two" 0 vos remstandby -server two -id work
check "as the record says" test "$(vos examine work --json | field 'len(found[0]["standbys"])')" = 0
finish
