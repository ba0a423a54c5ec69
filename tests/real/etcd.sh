#!/bin/bash
# The cell's database in etcd: three members with TLS, two servers. Members are killed and return,
# a stranger and a server that sleeps are no danger, and the database goes to a server and back
# while users are made.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/etcd.sh"
needs_cell
command -v etcd > /dev/null && command -v openssl > /dev/null ||
    { fail "etcd and openssl are there: 'scripts/setup.sh test' installs them"; finish; }
base=$WORK/etcd
A=$base/a B=$base/b C=$base/c D=$base/d tree=$base/tree
mkdir -p "$tree" && chmod 755 "$WORK" "$base"
loop=
end() {
    [ -z "$loop" ] || kill "$loop" 2> /dev/null
    within 60 "$RIALTO" umount --lazy "$tree" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$D" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$C" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$B" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$A" > /dev/null 2>&1
    end_members
    wait 2> /dev/null
}
trap end EXIT
pts() { within 30 "$RIALTO" pts "$@" --dir "${at:-$A}"; }
vos() { within 90 "$RIALTO" vos --dir "${at:-$A}" "$@"; }
as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
start() { within 90 "$RIALTO" up --no-mount --dir "$1"; }
stop() { within 60 "$RIALTO" down --dir "$1"; }
migrate() { within 60 "$RIALTO" cell migrate "$@" --dir "$A"; }
exported() { within 30 "$RIALTO" cell export --dir "$1" | sort; }
# soon COMMAND...: it succeeds within half a minute.
soon() { local until=$((SECONDS + 30))
    until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done; }

check "certificates of the members" members "$base" || finish
for number in 0 1 2; do member $number; done

check "a cell" within 90 "$RIALTO" up --no-mount --dir "$A" --cell etcd.test --listen 127.0.0.1:0 \
    --trust 127.0.0.0/8
stop "$A"
sed -i '/^socket = /a server = "one"' "$A/cell.toml"
check "its first server" start "$A"
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
check "a second server" within 90 "$RIALTO" up --dir "$B" --join "$address" --keys "$A/keys" \
    --server two
for user in joe:4711 jim:4712; do pts createuser "${user%:*}" -uid "${user#*:}" > /dev/null; done
check "a volume at the second server" vos create two vicep proj
check "a group" eval 'pts creategroup staff && pts adduser joe staff'
check "not while the server runs" says "runs already" 1 migrate "${to_etcd[@]}"
exported "$A" > "$base/before"
stop "$A"
ready() { migrate "${to_etcd[@]}" --dry-run; }
check "it could go to etcd" soon ready
stranger() { migrate --to etcd --endpoints "$endpoints" --cacert "$base/pki/ca.pem" --dry-run; }
check "not of a stranger without a certificate" says "etcd" 1 stranger
check "nothing went yet" refused grep -q '^\[etcd\]' "$A/cell.toml"
# Files of root's would keep the server's user out.
if [ "$(id -u)" = 0 ]; then
    chown 65534 "$A"
    check "as the server's user alone" says "is that of user 65534" 1 migrate "${to_etcd[@]}"
    chown 0 "$A"
fi
check "to etcd" says "moved to etcd" 0 migrate "${to_etcd[@]}"
check "once" says "already" 0 migrate "${to_etcd[@]}"
check "the server starts with it" start "$A"
check "and has what it had" eval 'soon exported "$A"; exported "$A" | diff "$base/before" -'
# The second server asks the first one until it reaches etcd itself.
at=$B
check "the second one goes on" soon pts createuser by-two
status() { within 30 "$RIALTO" status --dir "$1"; }
check "it says so" says "at another server" 0 status "$B"
check "it reaches etcd itself" within 90 "$RIALTO" up --dir "$B" "${up_etcd[@]}"
check "no server is asked any more" refused grep '^database = ' "$B/cell.toml"
check "which it says" says "in etcd, at 127.0.0.1" 0 status "$B"
check "it is one of the cell" soon pts createuser direct
at=
within 30 "$RIALTO" cell invite --dir "$B" --name three > "$base/code" 2>> "$base/log"
check "a third one joins by a code of the second" within 90 "$RIALTO" up --dir "$C" \
    --join "$(grep -m 1 / "$base/code")" "${up_etcd[@]}"
check "and is listed" soon says three 0 vos listaddrs
check "it asks etcd from the start" says "in etcd" 0 status "$C"
at=$C
check "and changes it" soon pts createuser by-three
at=
check "both see the same" eval 'exported "$A" > "$base/one" && exported "$B" | diff "$base/one" -'
check "doctor asks the members" says "it has a quorum" 0 sh -c "'$RIALTO' doctor --dir '$A'; true"
check "a mount of the tree" within 60 "$RIALTO" mount --daemon --dir "$A" "unix:$A/server.sock" \
    "$tree"
check "with a volume of the second server" eval 'within 30 "$RIALTO" fs mkmount "$tree/proj" proj &&
    chmod 777 "$tree/proj" && as 4711 sh -c "echo content > $tree/proj/file"'
check "a fence is in force at all servers" says "is fenced" 0 within 30 "$RIALTO" fence add \
    --host 192.0.2.0/24 --why test --dir "$A"
check "none is silent" refused says "did not confirm" 0 eval 'within 30 "$RIALTO" fence add \
    --host 203.0.113.0/24 --why all --dir "$B" 2>&1'

# The leader is lost, and one more.
leads() { timeout 10 curl -s --cacert "$base/pki/ca.pem" --cert "$base/pki/one.pem" \
    --key "$base/pki/one.key" -d '{}' \
    "https://${member_clients[$1]}/v3/maintenance/status" |
    python3 -c 'import json, sys
status = json.load(sys.stdin)
sys.exit(status["leader"] != status["header"]["member_id"])'; }
first=0 second=1
for number in 0 1 2; do leads $number && first=$number second=$(((number + 1) % 3)); done
check "a member leads" leads $first
lose $first
check "it is lost: a user is made" pts createuser with-two
check "and a volume" vos create one vicep other
lose $second
check "without quorum a user is refused" says "quorum" 1 pts createuser without
known() { as 4711 timeout 20 cat "$tree/proj/file"; }
check "a known user works" known
writes() { as 4711 timeout 20 sh -c "echo more >> $tree/proj/file && sync -f $tree/proj/file"; }
check "and changes a file of the second server" writes
check "doctor says why" says "has no quorum" 0 sh -c "'$RIALTO' doctor --dir '$A'; true"
member $first
check "a member returns: users are made" soon pts createuser again
member $second
check "nothing is lost" eval 'pts examine with-two && pts examine again'
check "the refused one was not made" says "no such user" 1 pts examine without

# A server that sleeps beyond its lease holds up no fence for ever.
sleeper=$(head -n 1 "$B/server.pid")
kill -STOP "$sleeper"
check "a fence while a server sleeps names it" says "but two did not confirm" 0 eval \
    'within 30 "$RIALTO" fence add --host 198.51.100.0/24 --why sleep --dir "$A" 2>&1; true'
kill -CONT "$sleeper"
at=$B
fenced() { within 10 "$RIALTO" fence list --dir "$B" | grep -q 198.51.100; }
check "it has the fence when it wakes" soon fenced
check "and is one of the cell again" soon pts createuser awake
at=

# Back to the server, and to etcd again, while users are made at the second server.
made=$base/made
(at=$B; number=0
    while :; do
        number=$((number + 1))
        pts createuser "loop$number" > /dev/null 2>&1 && echo "loop$number" >> "$made"
        sleep 0.05
    done) & loop=$!
soon test -s "$made"
within 60 "$RIALTO" umount --lazy "$tree" > /dev/null 2>&1
stop "$A"
check "to the server" says "moved to embedded" 0 migrate --to embedded "${to_etcd[@]:2}"
check "it has it" start "$A"
check "another etcd that does not answer is refused" says "check the endpoints" 1 \
    within 60 "$RIALTO" up --no-mount --dir "$A" --etcd 127.0.0.1:1
check "and the server was not stopped for it" kill -0 "$(head -n 1 "$A/server.pid")"
lost() { local user; while read -r user; do pts examine "$user" > /dev/null || return 1
    done < "$made"; }
check "every user that was made is there" lost
before=$(wc -l < "$made")
at=$B
check "the second server makes none in etcd any more" says "quorum" 1 pts createuser nowhere
at=
check "none at all" eval '[ "$(wc -l < "$made")" -eq "$before" ]'
exported "$A" > "$base/before"
stop "$A"
check "and to etcd again" says "moved to etcd" 0 migrate "${to_etcd[@]}"
check "it starts" start "$A"
soon exported "$A"
grows() { [ "$(wc -l < "$made")" -gt "$before" ]; }
check "the second server goes on" soon grows
kill "$loop"; wait "$loop" 2> /dev/null; loop=
check "every user that was made is there, again" lost
exported "$A" | grep -v loop > "$base/after"
grep -v loop "$base/before" | diff - "$base/after" > "$base/differ"
check "all else is as it was" test ! -s "$base/differ"
check "a backup" within 60 "$RIALTO" backup cell --dir "$B" "$base/backup"
check "is whole" says "etcd.test" 0 "$RIALTO" backup verify "$base/backup"

# A backup takes the place of what is in etcd.
pts createuser late > /dev/null
stop "$A"
check "a restore replaces nothing by accident" says "has a database" 1 "$RIALTO" restore cell \
    --dir "$A" "$base/backup"
check "but on purpose" says "all tokens have ended" 0 "$RIALTO" restore cell --replace \
    --dir "$A" "$base/backup"
check "it starts again" start "$A"
check "the cell has what the backup has" soon pts examine again
check "and no more" says "no such user" 1 pts examine late
at=$B
check "the second server too" soon says "no such user" 1 pts examine late
check "and changes it" soon pts createuser later

# A cell that has its database in etcd from the first moment on.
born() { within 90 "$RIALTO" up --no-mount --dir "$D" --listen 127.0.0.1:0 "$@"; }
check "not where nothing answers" says "check the endpoints" 1 born --cell born.test \
    --etcd 127.0.0.1:1
check "nor in place of another cell" says "already" 1 born --cell etcd.test "${up_etcd[@]}"
check "neither made anything" refused test -e "$D"
check "a new cell in etcd" born --cell born.test "${up_etcd[@]}"
check "which it says" says "in etcd" 0 status "$D"
check "once more changes nothing" born "${up_etcd[@]}"
check "other members are refused" says "change [etcd]" 1 born --etcd 127.0.0.1:2379
at=$D
check "it has a user" soon pts createuser ann
check "and a volume" vos create localhost vicep data
check "the first volume too" says root.cell 0 exported "$D"
finish
