#!/bin/bash
# Administration from a machine that has nothing of the cell: two servers, and a laptop whose users
# log in over the network, administer what is theirs, and are refused all else.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
base=$WORK/remote A=$WORK/remote/a B=$WORK/remote/b fake=$WORK/remote/fake far=$WORK/remote/far
trap 'within 30 "$RIALTO" umount --lazy --dir "$base/mounter" "$far" > /dev/null 2>&1
    for dir in "$fake" "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done' EXIT
mkdir -p "$far"
chmod 755 "$base" "$WORK"
# A user of the laptop: an empty home, no cell, and nothing of the environment of the test. Each
# has a place of its own for tokens, by the name of the laptop's user.
lap() { # USER UID COMMAND...: in the current directory
    local user=$1 uid=$2
    shift 2
    within 60 setpriv --reuid "$uid" --regid "$uid" --clear-groups env -i "PATH=$PATH" \
        "HOME=$base/home.$user" "XDG_RUNTIME_DIR=$base/run.$user" ${EXTRA:-} "$RIALTO" "$@"
}
for user in root:0 joe:4711 adm:4712 eve:4713; do
    mkdir -m 700 "$base/home.${user%:*}" "$base/run.${user%:*}"
    chown "${user#*:}" "$base/home.${user%:*}" "$base/run.${user%:*}"
done
root() { lap root 0 "$@"; }
joe() { lap joe 4711 "$@"; }
adm() { lap adm 4712 "$@"; }
eve() { lap eve 4713 "$@"; }
address() { sed -n 's/^listen = "\(.*\)"/\1/p' "$1/cell.toml"; }

# Users of the laptop may not see where this program was built.
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto" && RIALTO=$base/rialto

check "the first server" within 90 "$RIALTO" up --no-mount --dir "$A" --cell remote.test \
    --listen 127.0.0.1:0
a=$(address "$A")
check "a second joins it" within 90 "$RIALTO" up --dir "$B" --join "$a" --keys "$A/keys" \
    --server two
for user in joe jim adm; do
    within 30 "$RIALTO" pts createuser "$user" --dir "$A" > /dev/null
    printf 'open sesame\n' | within 30 "$RIALTO" passwd "$user" --new-only --password-stdin \
        --dir "$A" > /dev/null || fail "no password for $user"
done
check "an administrator" within 30 "$RIALTO" pts adduser adm system:administrators --dir "$A"
cd / || exit 1

# Nothing is known, and nobody is logged in.
check "without a cell the command tells where it looked" says "has no login" 3 root pts \
    membership joe
check "a cell that nothing lists" says "nor DNS has it" 3 root pts membership joe --cell no.test
check "no server" says "no server answers" 3 root vos listvol --via 127.0.0.1:1
check "anonymous callers make no groups" says "'rialto login NAME' does that" 1 joe pts \
    creategroup joe:x --via "$a"
check "a wrong password" says "wrong password, or no such user" 1 eval \
    "printf 'close sesame\n' | joe login joe --password-stdin --via $a"
check "no login without a name" says "name the user" 1 joe login --via "$a"

# An ordinary user.
check "joe logs in" says "logged in to remote.test as joe" 0 eval \
    "printf 'open sesame\n' | joe login joe --password-stdin --via $a"
check "his token is his alone" [ "$(stat -c %a:%u "$base/run.joe/rialto" \
    "$base/run.joe/rialto/remote.test.token" | tr '\n' ' ')" = "700:4711 600:4711 " ]
check "tokens: one" says "in remote.test, by password" 0 joe tokens
check "a group of his own" says "group joe:friends has id" 0 joe pts creategroup joe:friends
check "a member" joe pts adduser jim joe:friends
check "is listed" says "jim" 0 joe pts membership joe:friends
check "another name" joe pts rename joe:friends joe:mates
check "another owner" joe pts chown joe:mates jim
check "who has it now" says "neither" 1 eval "joe pts adduser joe jim:mates 2>&1 |
    sed 's/not permitted/neither/'; exit 1"
check "one more, which goes" eval "joe pts creategroup joe:gone && joe pts delete joe:gone"
check "status" says "as joe" 0 joe status
check "by the name of the cell" says "as joe" 0 joe status --cell remote.test
check "by the environment" says 'found by $RIALTO_CELL' 0 eval \
    "EXTRA=RIALTO_CELL=remote.test joe status"
check "at the socket as before" says "the socket in" 0 within 30 "$RIALTO" status --dir "$A"
check "with -localauth" within 30 "$RIALTO" vos listvol -localauth -dir "$A"
check "which is no way from here" says "holds none" 3 joe pts membership joe -localauth
check "a directory has one cell" says "holds the cell remote.test" 1 within 30 "$RIALTO" pts \
    membership joe --dir "$A" --cell other.test
check "doctor" says "remote.test answers" 0 eval "joe doctor; true"
check "as a uid: not over the network" says "the token alone says who asks" 1 joe pts membership \
    joe --as-uid 0
# Each administrative verb is refused, and recorded with the name.
refused_all() {
    local line bad=0
    while read -r line; do
        # shellcheck disable=SC2086
        joe $line > "$base/said" 2>&1 && { echo "done: $line"; bad=1; }
        grep -qE 'not permitted|may not|permitted' "$base/said" ||
            { echo "$line: $(cat "$base/said")"; bad=1; }
    done << 'END'
pts createuser eve
pts rename jim jane
pts delete jim
pts adduser joe system:administrators
pts setmax -user 1000
vos create two vicep joes
vos remove root.cell -force
vos offline root.cell
vos setfields root.cell -maxquota 5G
vos backup root.cell
vos addsite two vicep root.cell
vos snapshot create root.cell joes
vos lock root.cell
vos changeaddr two -remove
fence list
fence add --user jim
admin list
admin add joe --server two
audit show
END
    return $bad
}
check "joe administers nothing" refused_all

# An administrator, who is another user of the laptop, and root of the laptop.
check "adm logs in" says "as adm" 0 eval \
    "printf 'open sesame\n' | adm login adm --password-stdin --via $a"
check "so does root, as jim" says "as jim" 0 eval \
    "printf 'open sesame\n' | root login jim --password-stdin --via $a"
check "root of the laptop is jim, not the superuser" says "not permitted" 1 root fence list
# The writer of the log is a thread of its own, a moment behind.
recorded() { adm audit show --who joe --json | grep -F '"name":"joe"' | grep -F pts.Create |
    grep -F 'not permitted'; }
for _ in $(seq 50); do recorded > /dev/null && break; sleep 0.1; done
check "what joe tried was recorded" recorded
check "vos create" says "Volume" 0 adm vos create two vicep vol
check "vos examine" says "vol" 0 adm vos examine vol
check "vos addsite" adm vos addsite two vicep vol
check "vos release to the same server" says "Released" 0 adm vos release vol
first=$(within 30 "$RIALTO" vos listaddrs --dir "$A" --json | python3 -c 'import json, sys
print([one["name"] for one in map(json.loads, sys.stdin) if one["name"] != "two"][0])')
check "a site elsewhere" adm vos addsite "$first" vicep vol
check "vos release to another server" says "Released" 0 adm vos release vol
check "vos create, for a move" adm vos create two vicep movable
check "vos move between servers" says "moved" 0 adm vos move -id movable \
    -fromserver two -frompartition vicep -toserver "$first" -topartition vicep
check "which is there" says "$first" 0 adm vos examine movable
check "vos dump" eval "adm vos dump movable > '$base/dumped' && [ -s '$base/dumped' ]"
chmod 644 "$base/dumped"
check "vos restore at another server" adm vos restore two vicep restored -file "$base/dumped"
check "vos backup, snapshot, lock" eval "adm vos backup movable &&
    adm vos snapshot create movable before && adm vos lock movable && adm vos unlock movable"
check "vos copy" adm vos copy -id movable -fromserver "$first" -frompartition vicep \
    -toname copied -toserver two -topartition vicep
check "vos remove" eval "adm vos remove copied && adm vos remove restored"
check "a delegate" says "joe administers" 0 adm admin add joe --volume 'joes.*'
check "listed" says "joes.*" 0 adm admin list
check "a password for joe, by an administrator" eval "printf 'xyzzy plugh\n' |
    adm passwd joe --new-only --password-stdin"
check "ended his tokens" says "rialto login" 1 joe pts creategroup joe:more
check "the old password is none" says "wrong password" 1 eval \
    "printf 'open sesame\n' | joe login joe --password-stdin --cell remote.test"
check "the new one is" says "as joe" 0 eval "printf 'xyzzy plugh\n' |
    joe login joe --password-stdin --cell remote.test"
check "joe changes it himself" eval "printf 'xyzzy plugh\nopen sesame\n' |
    joe passwd joe --password-stdin"
check "and stays logged in" joe pts creategroup joe:more
fence=$(adm fence add --user joe --why test | sed -n 's/^\([0-9]*\): .*/\1/p')
check "joe is fenced" says "fenced" 1 joe pts creategroup joe:fenced
check "and not any more" eval "adm fence remove $fence && joe pts creategroup joe:unfenced"
check "joe is locked" eval "adm pts setfields joe -locked yes && refused joe pts creategroup joe:l"
check "and let in again" eval "adm pts setfields joe -locked no && joe pts delete joe:unfenced"
check "audit show" says "guard" 0 adm audit show --since 1h
check "audit verify needs the files" says "with -localauth" 1 adm audit verify
check "status shows the servers" says "two at 127.0.0.1" 0 adm status

# A server that is killed between two commands, and all of them away.
kill -9 "$(head -n 1 "$A/server.pid")"
check "the second server answers in its place" says "as adm" 0 adm status
check "the first one comes back" within 90 "$RIALTO" server --daemon --dir "$A"
check "and knows the login" adm vos listvol

# Tokens of others.
mkdir -m 700 "$base/planted" && chown 4712 "$base/planted"
check "a directory of another user" says "belongs to uid 4712" 1 eval \
    "EXTRA=RIALTO_TOKENS=$base/planted joe status"
ln -s "$base/run.joe/rialto" "$base/link"
check "a link" says "it is a link" 1 eval "EXTRA=RIALTO_TOKENS=$base/link joe status"
chmod 640 "$base/run.joe/rialto/remote.test.token"
check "a file that others may read" says "lets other users in" 1 joe status
chmod 600 "$base/run.joe/rialto/remote.test.token"
mkdir -m 700 "$base/stolen" && chown 4711 "$base/stolen"
python3 - "$base/run.adm/rialto/remote.test.token" "$base/stolen/remote.test.token" << 'END'
import json, os, sys
held = json.load(open(sys.argv[1]))
held["key"] = "07" * 32
os.umask(0o077)
json.dump(held, open(sys.argv[2], "w"))
os.chown(sys.argv[2], 4711, -1)
END
check "a token without its key" says "has no token of that cell" 1 eval \
    "EXTRA=RIALTO_TOKENS=$base/stolen joe fence list"

# Another cell with the same name.
check "an impostor" within 90 "$RIALTO" up --no-mount --dir "$fake" --cell remote.test \
    --listen 127.0.0.1:0
check "gets no token" says "Another machine may intercept" 3 adm fence list \
    --via "$(address "$fake")"
check "and no password of a user who is logged in" says "Another machine may intercept" 3 eval \
    "printf 'open sesame\n' | adm login adm --password-stdin --via '$(address "$fake")'"

# Through a mount, whose key stays there.
check "a mount of the laptop" within 60 "$RIALTO" mount --daemon --dir "$base/mounter" "$a" "$far"
check "joe logs in there" says "as joe" 0 eval "printf 'open sesame\n' |
    joe login joe --password-stdin --path '$far'"
mv "$base/run.joe/rialto" "$base/run.joe/away"
cd "$far" || fail "no tree"
check "in the tree a command is joe" says "as joe" 0 joe status
check "by the mount" says "found by the tree at" 0 joe status
check "and makes groups" joe pts creategroup joe:tree
check "another user there is nobody" says "without a login" 0 eve status
check "joe logs out" joe logout --path "$far"
check "and is nobody" says "without a login" 0 joe status
check "who makes no groups" says "not permitted" 1 joe pts creategroup joe:late
cd / || exit 1
mv "$base/run.joe/away" "$base/run.joe/rialto"

# The end.
check "joe is still logged in without the mount" joe pts creategroup joe:last
check "joe logs out" joe logout
check "tokens: none" says "no token" 1 joe tokens
check "everything is refused" says "'rialto login NAME' does that" 1 joe pts delete joe:last \
    --via "$a"
check "adm logs out" adm logout --cell remote.test
check "fence" says "'rialto login NAME' does that" 1 adm fence list --via "$a"
check "vos" says "'rialto login NAME' does that" 1 adm vos create two vicep late --via "$a"
check "audit" says "'rialto login NAME' does that" 1 adm audit show --via "$a"
finish
