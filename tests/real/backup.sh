#!/bin/bash
# The first server of a cell is lost with everything but its disks: a backup makes its database and
# its keys again, and users, rights and volumes are what they were.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/backup
A=$base/a B=$base/b tree=$base/tree far=$base/far
mkdir -p "$far" "$tree" && chmod 755 "$WORK" "$base"
loop=
end() {
    [ -z "$loop" ] || kill "$loop" 2> /dev/null
    within 60 "$RIALTO" umount --lazy "$far" > /dev/null 2>&1
    within 60 "$RIALTO" umount --lazy --dir "$A" "$tree" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$B" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$A" > /dev/null 2>&1
}
trap end EXIT
pts() { within 30 "$RIALTO" pts "$@" --dir "$A"; }
vos() { within 90 "$RIALTO" vos --dir "$A" "$@"; }
as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
start() { within 90 "$RIALTO" up --no-mount --dir "$1"; }
stop() { within 60 "$RIALTO" down --dir "$1"; }
mounted() { within 60 "$RIALTO" mount --daemon --dir "$A" "unix:$A/server.sock" "$tree"; }
far_mounted() { within 60 "$RIALTO" mount --daemon --dir "$base/other" "$address" "$far"; }
login() { printf '%s\n' "$2" | within 60 setpriv --reuid "$3" --regid "$3" --clear-groups \
    "$RIALTO" login "$1" --password-stdin --path "$far"; }
exported() { within 30 "$RIALTO" cell export "$@" --dir "$A"; }
number() { pts examine "$1" | sed -n 's/.*id: \(-\{0,1\}[0-9]*\),.*/\1/p'; }

check "a cell" within 90 "$RIALTO" up --no-mount --dir "$A" --cell backup.test --listen 127.0.0.1:0
stop "$A"
# Its disk is not in its directory.
mv "$A/vicep" "$base/disk"
sed -i "s|^partition = .*|partition = \"$base/disk\"\nserver = \"one\"|" "$A/cell.toml"
check "whose partition is a disk of its own" start "$A"
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
check "a second server" within 90 "$RIALTO" up --dir "$B" --join "$address" --keys "$A/keys" \
    --server two
check "doctor knows that the cell is new" says "none yet of a new cell" 0 sh \
    -c "'$RIALTO' doctor --dir '$A'; true"
for user in joe:4711 jim:4712; do pts createuser "${user%:*}" -uid "${user#*:}" > /dev/null; done
pts creategroup staff > /dev/null
pts creategroup joe:friends -owner joe > /dev/null
check "groups in groups" eval 'pts adduser joe staff && pts adduser staff joe:friends'
for number in $(seq 10); do
    vos create one disk "home.$number" > /dev/null &&
        vos create two vicep "proj.$number" > /dev/null
done
check "20 volumes" test "$(vos listvldb --json | grep -c '"name":"\(home\|proj\)')" -eq 20
check "a tree" mounted
for user in joe jim; do
    printf 'open sesame %s\n' "$user" |
        "$RIALTO" passwd "$user" --new-only --password-stdin --path "$tree" > /dev/null
done
check "lists decide in a volume" eval 'vos setfields proj.1 -model acl &&
    within 30 "$RIALTO" fs mkmount "$tree/proj" proj.1 &&
    within 30 "$RIALTO" fs setacl "$tree/proj" joe:friends rl &&
    echo content > "$tree/proj/file" && sync -f "$tree/proj/file"'
check "a fence and an administrator" eval \
    '"$RIALTO" fence add --host 192.0.2.0/24 --why test --dir "$A" &&
        "$RIALTO" admin add joe --volume "home.*" --dir "$A"'
check "one may read" as 4711 cat "$tree/proj/file"
check "the other may not" says "Permission denied" 1 as 4712 cat "$tree/proj/file"
check "a mount of another machine" far_mounted
check "where joe logs in" says "logged in" 0 login joe "open sesame joe" 4711

# A backup while users come and go.
exported > "$base/before"
(while :; do pts createuser passing && pts delete passing; done) > /dev/null 2>&1 & loop=$!
printf 'correct horse\n' > "$base/passphrase"
sealed=(--passphrase-file "$base/passphrase")
check "a backup while users change" "$RIALTO" backup cell --keys "${sealed[@]}" --dir "$A" \
    "$base/backup"
kill "$loop"; wait "$loop" 2> /dev/null; loop=
pts delete passing > /dev/null 2>&1
check "is only its owner's" test "$(stat -c %a "$base/backup")" = 600
check "is not overwritten" says "it is there already" 1 "$RIALTO" backup cell --dir "$A" \
    "$base/backup"
check "keys only encrypted" says "--passphrase-file" 1 sh -c \
    "'$RIALTO' backup cell --keys --dir '$A' '$base/plain' < /dev/null"
check "the second server gives one too" "$RIALTO" backup cell --dir "$B" "$base/of-two"
check "it is whole" says "the cell backup.test at revision" 0 "$RIALTO" backup verify \
    "${sealed[@]}" "$base/backup"
check "with these counts" says '"servers":2,"taken"' 0 "$RIALTO" backup verify --json \
    "$base/of-two"
check "by pipe" eval '"$RIALTO" backup cell --dir "$A" - | "$RIALTO" backup verify - > /dev/null'
printf 'wrong horse\n' > "$base/wrong"
check "not with another passphrase" says "the passphrase is wrong" 1 "$RIALTO" backup verify \
    --passphrase-file "$base/wrong" "$base/backup"
head -c 3000 "$base/of-two" > "$base/cut"
check "not cut off" says "it is cut off" 1 "$RIALTO" backup verify "$base/cut"
check "the audit log has it" says "cell.Copy" 0 "$RIALTO" audit show --dir "$A"
check "doctor knows it" says "the newest is 0 days old" 0 sh -c \
    "'$RIALTO' doctor --dir '$A'; true"

# Lost with what was changed since.
pts createuser late > /dev/null
pts creategroup late:ones -owner late > /dev/null
late=$(number late) late_group=$(number late:ones)
check "no restore below a running server" says "it runs already" 1 "$RIALTO" restore cell \
    --replace --dir "$A" "$base/of-two"
within 60 "$RIALTO" umount --dir "$A" "$tree"
kill -9 "$(head -n 1 "$A/server.pid")"
rm -rf "$A"
check "nothing without keys" says "no cell.toml" 1 "$RIALTO" restore cell --dir "$A" "$base/of-two"
check "nothing of a cut backup" says "it is cut off" 1 "$RIALTO" restore cell --dir "$A" \
    "$base/cut"
check "nothing is left of that" test ! -e "$A"
check "restored on an empty machine" says "all tokens have ended" 0 "$RIALTO" restore cell \
    "${sealed[@]}" --dir "$A" "$base/backup"
check "nothing of it is for others" test -z \
    "$(find "$A/celldb" "$A/keys" "$A/cell.toml" -perm /077)"
check "it starts" start "$A"
# soon COMMAND...: it succeeds within half a minute.
soon() { local until=$((SECONDS + 30))
    until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $until ] || return 1; sleep 0.2; done; }
joined() { soon within 10 "$RIALTO" vos --dir "$B" examine proj.2; }
check "the second server goes on by itself" joined
pts delete passing > /dev/null 2>&1
exported > "$base/after"
check "users, groups, rules and volumes are what they were" diff "$base/before" "$base/after"
check "all of them are there" test "$(grep -Ec '^(user|group|member|fence|admin|server|location)' \
    "$base/after")" -eq 31
check "the tree" mounted
check "one may read as before" as 4711 cat "$tree/proj/file"
check "the other may not, as before" says "Permission denied" 1 as 4712 cat "$tree/proj/file"
far_read() { as 4711 timeout 10 cat "$far/proj/file"; }
ended() { soon says "Permission denied" 1 far_read; }
check "the token of before has ended" ended
check "the password of before is right" says "logged in" 0 login joe "open sesame joe" 4711
reads() { soon far_read; }
check "and the mount of before goes on" reads
pts createuser new > /dev/null
pts creategroup new:ones -owner new > /dev/null
check "a new user is not the lost one" test "$(number new)" -gt "$late"
check "a new group neither" test "$(number new:ones)" -lt "$late_group"
check "a volume at each server" eval 'vos create one disk new.one && vos create two vicep new.two'
# Text that people edit.
exported > "$base/after-new"
check "an import of what is there changes nothing" says "0 changes made" 0 "$RIALTO" cell import \
    --prune --dir "$A" "$base/after-new"
sed -e 's/^user jim .*/& locked=yes/' -e '/^user new /d' -e '/^group new:ones/d' \
    -e '/^member new:ones/d' -e '/^fence/d' "$base/after-new" > "$base/edited"
printf 'user ann uid=4713\nmember staff member=ann\nfence user:jim why="two words"\n' \
    >> "$base/edited"
check "a dry run shows the changes" says "add ann to staff" 0 "$RIALTO" cell import --dry-run \
    --dir "$A" "$base/edited"
check "and makes none" diff "$base/after-new" <(exported)
check "an import makes them" says "change user jim: locked no -> yes" 0 "$RIALTO" cell import \
    --dir "$A" "$base/edited"
check "a user, a member, a fence" test "$(exported | grep -c \
    -e '^member staff member=ann$' -e '^user ann .*uid=4713' -e '^fence user:jim why="two words"' \
    -e '^fence host:192.0.2.0/24')" -eq 4
check "and removes nothing" says "user new" 0 exported users
check "unless it is told to" says "remove new:ones" 0 "$RIALTO" cell import --prune --dir "$A" \
    "$base/edited"
check "then it is as the file has it" says "0 changes made" 0 "$RIALTO" cell import --prune \
    --dir "$A" "$base/edited"
check "JSON does as well" eval 'exported --json > "$base/json" &&
    says "0 changes made" 0 "$RIALTO" cell import --prune --dir "$A" "$base/json"'
check "no number is changed" says "it has the number" 1 sh -c \
    "echo 'user joe id=77' | '$RIALTO' cell import --dir '$A' -"
check "nor by anyone" says "system:administrators" 1 sh -c \
    "echo 'user eve uid=4799' | '$RIALTO' cell import --as-uid 4711 --dir '$A' -"
# Into a cell that is there: the database is moved aside.
check "not into a database that is there" eval 'stop "$A" &&
    says "use --replace" 1 "$RIALTO" restore cell --dir "$A" "$base/of-two"'
check "it is moved aside" eval 'says "is in $A/celldb.before-" 0 "$RIALTO" restore cell --replace \
    --dir "$A" "$base/of-two" && ls -d "$A"/celldb.before-*'
check "and it starts again" start "$A"
check "the second server too" joined
finish
