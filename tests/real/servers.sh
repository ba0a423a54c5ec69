#!/bin/bash
# Three servers of one cell as processes: volumes are made, listed, renamed and removed wherever
# they are, whoever is asked; what was stopped is mended.
. "$(dirname "$0")/../lib/real.sh"
three_servers servers
vos() { within 90 "$RIALTO" vos --dir "$A" "$@"; }
field() {
    python3 -c 'import json, sys
found = [json.loads(line) for line in sys.stdin]
print(eval(sys.argv[1]))' "$1"
}

check "up again leaves it alone" says "the server of servers.test listens" 0 "$RIALTO" up \
    --dir "$B" --join "$address"
check "no two have one name" says "a server of it is called two" 1 "$RIALTO" up --dir "$base/d" \
    --join "$address" --keys "$A/keys" --server two
check "all of them are listed" test "$(vos listaddrs --json | wc -l)" -eq 3
check "the root of the tree was entered by itself" says "root.cell" 0 vos listvldb root.cell
check "a second server has no root of its own" test \
    "$("$RIALTO" vos --dir "$B" listvol -server two -quiet -fast | wc -l)" -eq 0

check "a volume elsewhere" says "of two" 0 vos create two vicep home.alice
check "is found by whoever is asked" says "two" 0 "$RIALTO" vos --dir "$C" examine home.alice
check "its quota too" vos setfields home.alice -maxquota 1G
check "a name is given once in the cell" says "there is a volume of that name" 1 "$RIALTO" vos \
    --dir "$C" create three vicep home.alice
twice() { vos listvol --json | field '"\n".join(str(v["id"]) for v in found)' | sort | uniq -d; }
check "numbers are given once" test -z "$(twice)"
check "a backup" says "Created backup volume for home.alice" 0 vos backup home.alice
number=$(vos examine home.alice.backup --json | field 'found[0]["id"]')
vos backup home.alice > /dev/null
check "which keeps its number" test \
    "$(vos examine home.alice.backup --json | field 'found[0]["id"]')" = "$number"
check "a snapshot" says "Created snapshot" 0 vos snapshot create home.alice before
check "which is found at its server" says "before" 0 vos snapshot list home.alice
check "another name" says "Renamed volume home.alice to home.bob" 0 vos rename home.alice home.bob
check "for its backup too" says "home.bob.backup" 0 vos examine "$number"
check "a site" says "Added replication site three" 0 vos addsite three vicep home.bob
check "is shown as not released" says "Not released" 0 vos listvldb home.bob
check "lock" vos lock home.bob
check "keeps others away" says "is locked: lock" 1 vos backup home.bob
check "and is listed" test "$(vos listvldb -locked --json | wc -l)" -eq 1
check "unlock" vos unlock home.bob
check "backupsys goes over all servers" says "Total volumes backed up: 2; failed to backup: 0" 0 \
    vos backupsys
check "the site goes" says "Removed replication site" 0 vos remsite -server three -id home.bob

# Released: what both sites show is what was released, byte for byte, whatever is written after it.
work=$base/work tree=$base/work/tree shown=$base/shown
mkdir -p "$tree" "$shown/tree"
mounted() {
    within 60 "$RIALTO" mount --daemon --dir "$A" --volume "$1" "unix:$A/server.sock" "$2"
}
unmounted() { within 60 "$RIALTO" umount --dir "$A" "$1"; }
picture() { (cd "$1" && find . -mindepth 1 ! -name writer.log -printf '%p %y %m %U %G %s %T@ %l\n' |
    sort && find . -type f ! -name writer.log -print0 | sort -z | xargs -0 sha256sum); }
# shows DIR SERVER...: while only these of the sites run, the read-only volume is as in that
# picture.
shows() {
    local wanted=$1 result
    mounted real.readonly "$shown/tree" || return 1
    diff "$wanted" <(picture "$shown/tree")
    result=$?
    unmounted "$shown/tree" && return $result
}
start() { within 90 "$RIALTO" up --no-mount --dir "$1"; }
stop() { within 60 "$RIALTO" down --dir "$1"; }
each_shows() { # each_shows PICTURE: asked one by one
    stop "$C" && shows "$1" && start "$C" && stop "$B" && shows "$1" && start "$B"
}
check "a volume" vos create -name real -server localhost
check "with no sites is not released" says "vos addsite" 1 vos release real
check "sites" sh -c "'$RIALTO' vos --dir '$A' addsite two vicep real &&
    '$RIALTO' vos --dir '$A' addsite three vicep real"
check "is mounted" mounted real "$tree"
mkdir -p "$tree/many/deep" && cp -a /usr/share/doc/bash "$tree/" 2> /dev/null
for number in $(seq 300); do head -c $((number * 50)) /dev/urandom > "$tree/many/$number"; done
ln -s ../many/7 "$tree/many/deep/link" && ln "$tree/many/8" "$tree/many/deep/eight" &&
    chmod 600 "$tree/many/9"
head -c 10000000 /dev/urandom > "$tree/large" && truncate -s 50M "$tree/holes"
sync -f "$tree/large"
picture "$tree" > "$base/first"
check "released" says "Released volume real successfully" 0 vos release real
check "each site has it whole" each_shows "$base/first"
for number in $(seq 10); do head -c 10000 /dev/urandom > "$tree/many/$number"; done
rm -r "$tree/many/100" "$tree/many/deep" && mv "$tree/many/101" "$tree/moved" && printf changed |
    dd of="$tree/large" bs=1 seek=5000000 conv=notrunc status=none
sync -f "$tree/large"
picture "$tree" > "$base/second"
check "what was written since is not shown" shows "$base/first"
check "dry run says the steps" says "would be done: two: fetch what changed" 0 vos release real \
    -dryrun
check "released again" says "Released volume real successfully" 0 vos release real
sent=$(vos release real --json | field 'found[0]["bytes"]')
check "which sends next to nothing when nothing changed" test "$sent" -lt 100000
check "each site shows that" each_shows "$base/second"
# A site is away, another dies in the middle, and the leader too.
head -c 20000000 /dev/urandom > "$tree/large" && sync -f "$tree/large"
picture "$tree" > "$base/third"
kill -9 "$(head -n 1 "$C/server.pid")"
check "a release that a site misses" says "1 of its sites lag" 1 vos release real
check "it lags" says "server three partition /vicep RO Site -- Old release" 0 vos listvldb real
check "the other one shows it" shows "$base/third"
check "it comes back" start "$C"
check "and catches up" says "Released volume real successfully" 0 vos release real
check "as the other one" each_shows "$base/third"
head -c 20000000 /dev/urandom > "$tree/large" && sync -f "$tree/large"
picture "$tree" > "$base/fourth"
"$RIALTO" vos --dir "$A" release real > "$base/release.log" 2>&1 & leader=$!
sleep 0.3
kill -9 $leader 2> /dev/null
wait $leader 2> /dev/null
check "a release whose leader died is finished" says "Released volume real successfully" 0 vos \
    release real
check "at both sites" each_shows "$base/fourth"
cat > "$base/writer.py" <<'PY'
"""Appends records and makes each stable, until told to stop; says what it did and what it finds."""
import os, sys
path, stop = sys.argv[1:]
# A user who can read what he makes writes it through the client: a volume does not leave while the
# kernel itself writes bodies of it.
log = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
count = 0
while not os.path.exists(stop):
    os.write(log, b"%08d\n" % count)
    os.fsync(log)
    count += 1
os.close(log)
with open(path, "rb") as found:
    same = [int(record) for record in found.read().split()] == list(range(count))
print(count, "records,", "all there" if same else "not all there, or not in order")
PY
python3 "$base/writer.py" "$tree/writer.log" "$base/stop" > "$base/writer.log" 2>&1 &
writer=$!
cat "$tree/large" > /dev/null && exec 9>> "$tree/large"
check "what the kernel writes does not leave" says "open for writing" 1 vos move real -toserver two
check "and is where it was" says "it is there" 1 vos move real -toserver localhost
exec 9>&-
check "whole" diff "$base/fourth" <(picture "$tree")
check "moved to another server" says "Volume real moved to two" 0 vos move real -toserver two
check "it is there" says "server two partition /vicep RW Site" 0 vos listvldb real
check "who has it mounted goes on" diff "$base/fourth" <(picture "$tree")
check "and back, where the last release is still swept" says "Volume real moved to" 0 vos move \
    real -toserver localhost
check "with all that it held" diff "$base/fourth" <(picture "$tree")
check "evacuate says what it would do" says "would be done" 0 vos evacuate -server two -dryrun
touch "$base/stop"
check "who appended and synced all the while failed at nothing" wait "$writer"
check "and finds every record" grep -q "all there$" "$base/writer.log"
rm -f "$tree/writer.log"
check "it is where it was" says "it is there" 1 vos move real -toserver localhost
check "nothing is left over" test "$(vos listvol --json | grep -c 'releasing\|moving')" -eq 0

# A shadow: a copy that no record names, which gets what changed; and a transaction that is ended.
echo shadowed > "$tree/note" && sync -f "$tree/note"
picture "$tree" > "$base/shadowed"
check "a shadow" says "to three /vicep: real.shadow (536879999)" 0 vos shadow real -toserver three \
    -toid 536879999
check "which no record names" test "$(vos listvldb | grep -c shadow)" -eq 0
check "nor does one that follows the servers" says "0 changed" 0 vos syncvldb
check "is found" says "The database does not name it" 0 vos examine real.shadow
rm "$tree/note" && echo later > "$tree/later" && sync -f "$tree/later"
check "it is brought up to date" says "shadowed from" 0 vos shadow -id real -fromserver \
    localhost -frompartition vicep -toserver three -topartition vicep -incremental -offline
sent() { vos status -server three -all --json | field 'found[0]["transactions"][-1]["bytes"]'; }
check "by what changed" test "$(sent)" -lt 100000
check "and offline" says "Off-line" 0 vos examine real.shadow
check "not where the volume is" says "has the volume itself" 1 vos shadow real -toserver localhost
check "is unmounted" unmounted "$tree"
check "a volume elsewhere" vos create two vicep slow
check "is mounted" mounted slow "$tree"
head -c 300M /dev/urandom > "$tree/large" && sync -f "$tree/large"
check "is unmounted" unmounted "$tree"
runs() { vos status -server three --json | field \
    'next((t["number"] for t in found[0]["transactions"]), "")'; }
# Its source is silent from the begin of the transaction on.
vos shadow slow -toserver three -verbose > "$base/ended.log" 2>&1 &
leader=$!
for _ in $(seq 500); do grep -q 'fetch it' "$base/ended.log" && break; sleep 0.01; done
sleep 0.05
source=$(head -n 1 "$B/server.pid")
kill -STOP "$source"
number=$(runs)
check "a transaction is ended" says "an administrator ended it" 0 vos endtrans -server three \
    -transaction "$number"
check "one that is over stays so" says "is over" 0 vos endtrans three "$number"
check "there is no other" says "no transaction 99" 1 vos endtrans three 99
kill -CONT "$source"
wait $leader
check "its command is refused" [ $? -eq 1 ]
check "and says why" grep -q "an administrator ended it" "$base/ended.log"
check "what came is shown" says "Unfinished: 1 on three" 0 vos status -server three
check "the command can be repeated" says "shadowed from two" 0 vos shadow slow -toserver three
check "nothing is unfinished then" refused grep -q Unfinished <(vos status -server three)
check "the shadow becomes a volume" sh -c "'$RIALTO' vos --dir '$A' online real.shadow;
    '$RIALTO' vos --dir '$A' clone -server three -id real.shadow -toname again -readwrite"
check "is mounted" mounted again "$tree"
check "which has all" says later 0 cat "$tree/later"
check "is unmounted" unmounted "$tree"
for one in again slow slow.shadow real.shadow; do
    check "$one is removed" vos remove "$one"; done
bases() { vos listvol --json | field '" ".join(v["name"] for v in found if ".base" in v["name"])'; }
for one in $(bases); do
    check "and $one" vos remove "$one"
done

# The access list of a single file goes where its file goes.
lists=$base/lists listed=$base/listed
mkdir -p "$lists" "$listed"
check "a volume where lists decide" sh -c \
    "'$RIALTO' vos --dir '$A' create -name listed -server localhost &&
        '$RIALTO' vos --dir '$A' setfields listed -model acl -acl system:anyuser l"
check "is mounted" mounted listed "$lists"
echo text > "$lists/file"
check "a file has its own" within 30 "$RIALTO" fs setacl "$lists/file" system:anyuser rl
own_list() {
    local anyuser='(v["own"], e["rights"])
        for v in found for e in v["normal"] if e["name"] == "system:anyuser"'
    test "$("$RIALTO" fs listacl "$1/file" --json | field "[$anyuser]")" = "[(True, 'rl')]"
}
check "which is shown" own_list "$lists"
check "it is released elsewhere" sh -c \
    "'$RIALTO' vos --dir '$A' addsite three vicep listed && '$RIALTO' vos --dir '$A' release listed"
check "what was released is mounted" mounted listed.readonly "$listed"
check "with that list" own_list "$listed"
check "is unmounted again" unmounted "$listed"
check "moved" says "Volume listed moved to two" 0 vos move listed -toserver two
check "it has that list" own_list "$lists"
check "and moved it is unmounted" unmounted "$lists"
check "what was released goes" vos remove three vicep listed.readonly
check "and it" vos remove listed

# A server is emptied: what is written there and what is only read there go elsewhere, as they are.
check "two is evacuated" says "Read-only site of real moved from two" 0 vos evacuate -server two
check "nothing is left on it" test "$(vos listvol -server two --json | grep -c '"name"')" -eq 0
check "every site is where it is said to be" says "0 changed" 0 vos syncvldb
check "and one volume comes back" says "Volume home.bob moved to two" 0 vos move home.bob \
    -toserver two
check "nothing is unfinished" test "$(vos status --json | grep -c '"unfinished":\[\]')" -eq 3
check "so nothing can be given up" says "no data was received" 1 vos abandon home.bob
# The database forgets, servers are away.
kill -9 "$(head -n 1 "$B/server.pid")"
check "a server that is away is said" says "two" 1 vos examine home.bob
check "the others are listed all the same" test \
    "$(vos listvol --json 2> /dev/null | field '[v["name"] for v in found]' | grep -c root.cell)" \
    -eq 1
check "syncserv believes nobody who is silent" says "0 changed" 0 vos syncserv
check "it comes back" within 90 "$RIALTO" up --no-mount --dir "$B"
check "syncvldb finds nothing to do" says "0 changed, 0 left" 0 vos syncvldb
id=$(vos examine home.bob --json | field 'found[0]["id"]')
check "zap leaves the entry" vos zap -server two -id "$id"
check "syncserv removes it" says "1 changed" 0 vos syncserv
check "and it is gone" says "no such volume" 1 vos examine home.bob

kill -9 "$(head -n 1 "$A/server.pid")"
check "without the database volumes are not made" says "database cannot be reached" 1 "$RIALTO" \
    vos --dir "$B" create two vicep lost
check "it is back" within 90 "$RIALTO" up --no-mount --dir "$A"
in_time() { local _; for _ in $(seq 30); do "$@" > /dev/null 2>&1 &&
    return 0; sleep 1; done; "$@"; }
check "and they are" in_time "$RIALTO" vos --dir "$B" create two vicep found

# The keys by which servers know each other: replaced while a server runs, withdrawn, and never
# taken again.
keys_of() { vos listaddrs --json | field "[s['keys'] for s in found if s['name'] == '$1'][0]"; }
count_of() {
    vos listaddrs --json | field "[len(s['keys']) for s in found if s['name'] == '$1'][0]"
}
before=$(keys_of three)
check "a server's key is listed" test "$(count_of three)" -eq 1
check "doctor says so" sh -c "'$RIALTO' doctor --dir '$C' | grep 'other servers know this one'"
check "a new key is made" says "makes a new certificate" 0 "$RIALTO" keys rotate certificate \
    --dir "$C"
# Both in one listing: in between the old key and the new one are listed.
replaced() {
    local keys
    keys=$(keys_of three) && [ "$keys" != "$before" ] && [[ $keys =~ ^\[\'[^,]+\'\]$ ]]
}
check "and takes the place of the old one" in_time replaced
check "the server is one still" within 60 "$RIALTO" vos --dir "$C" create two vicep keyed
check "its key is withdrawn" says "withdrew 1 of three" 0 within 60 "$RIALTO" keys withdraw three \
    --dir "$A"
check "none is listed" test "$(count_of three)" -eq 0
check "it is a server no more" refused within 60 "$RIALTO" vos --dir "$C" create two vicep stranger
# The server hears of the change from the database, which may take a while.
unlisted() { grep 'does not list' <<< "$("$RIALTO" doctor --dir "$C")"; }
check "doctor says that too" in_time unlisted
check "the audit log has it" sh -c "'$RIALTO' audit show --dir '$A' --since 1d | grep -i withdraw"
check "it makes another key" "$RIALTO" keys rotate certificate --dir "$C"
check "and is a server again" in_time "$RIALTO" vos --dir "$C" create two vicep again
check "by one key" test "$(count_of three)" -eq 1
for dir in "$C" "$B" "$A"; do check "down" within 60 "$RIALTO" down --dir "$dir"; done
grep -l "panicked" "$A"/logs/* "$B"/logs/* "$C"/logs/* 2> /dev/null && fail "a server panicked"
finish
