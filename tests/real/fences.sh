#!/bin/bash
# Who is cut off, and who administers a part of the cell: fences in the middle of writing, delegates
# with vos.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/fences cell=$WORK/fences/cell at=$WORK/fences/tree far=$WORK/fences/far \
    two=$WORK/fences/two
trap 'touch "$base/logs/joe.stop" "$base/logs/jim.stop"
    within 60 "$RIALTO" umount "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$two" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$far"
as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
fence() { within 60 "$RIALTO" fence "$@" --dir "$cell"; }
admin() { within 60 "$RIALTO" admin "$@" --dir "$cell"; }
pts() { within 30 "$RIALTO" pts "$@" --dir "$cell"; }
vos() { within 90 "$RIALTO" vos --dir "$cell" "$@"; }
number() { sed -n 's/^\([0-9]*\): .*/\1/p'; }
login() { printf '%s\n' "$2" |
    within 60 setpriv --reuid "$3" --regid "$3" --clear-groups "$RIALTO" login "$1" \
    --password-stdin --path "$far"; }

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell fences.test \
    --listen 127.0.0.1:0
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$cell/cell.toml")
check "a second server" within 90 "$RIALTO" up --dir "$two" --join "$address" --keys "$cell/keys" \
    --server two
for user in joe:4711 jim:4712; do
    pts createuser "${user%:*}" -uid "${user#*:}" > /dev/null
    printf 'open sesame\n' |
        "$RIALTO" passwd "${user%:*}" --new-only --password-stdin --path "$at" > /dev/null
done
mkdir "$at/open" && chmod 1777 "$at/open"
check "a mount of a machine that nobody trusts" within 60 "$RIALTO" mount --daemon \
    --dir "$base/other" "$address" "$far"
login joe "open sesame" 4711 > /dev/null
login jim "open sesame" 4712 > /dev/null

# Each writes lines, and says whether they came to the server's disk.
writer() { # UID FILE LOG
    as "$1" bash -c 'while [ ! -e "$2.stop" ]; do
        if { echo line >> "$1" && sync "$1"; } 2>> "$2"; then echo ok; else echo failed; fi >> "$2"
        sleep 0.1
    done' writer "$2" "$3"
}
logs=$base/logs; mkdir -p "$logs"; chmod 777 "$logs"; chmod 755 "$base" "$WORK"
writer 4711 "$far/open/joe" "$logs/joe" & joe=$!
writer 4712 "$far/open/jim" "$logs/jim" & jim=$!
writes() { # NAME WORD: more of these come
    local before; before=$(grep -c "$2" "$logs/$1")
    for _ in $(seq 300); do [ "$(grep -c "$2" "$logs/$1")" -gt $((before + 3)) ] &&
        return 0; sleep 0.1; done
    tail -n 5 "$logs/$1"; return 1
}
check "both write" eval "writes joe ok && writes jim ok"
check "one is fenced off" says "user joe is fenced" 0 fence add --user joe --why "a test"
size=$(stat -c %s "$at/open/joe")
check "his writes fail" writes joe failed
check "with a clear error" grep -q 'Permission denied' "$logs/joe"
check "the other's go on" writes jim ok
check "nothing of his came behind the fence" [ "$(stat -c %s "$at/open/joe")" -eq "$size" ]
check "the list shows it" says "a test" 0 fence list
check "in JSON too" says '"in_force":true' 0 fence list --json
remove_listed() { fence remove "$(fence list --json | sed -n 's/.*"number":\([0-9]*\).*/\1/p')"; }
check "it is taken away" remove_listed
check "he writes again" writes joe ok
check "a host" says "is fenced" 0 fence add --host 127.0.0.0/8
check "both of it are cut off" eval "writes joe failed && writes jim failed"
check "the server's own mount is not" touch "$at/open/here"
check "and let in" remove_listed
check "both write again" eval "writes joe ok && writes jim ok"
touch "$logs/joe.stop" "$logs/jim.stop"; wait $joe $jim
check "a user fences nobody off" says "system:administrators" 1 fence add --user jim --as-uid 4711
check "an end that comes by itself" eval \
    'fence add --user joe --for 1s && sleep 2 && as 4711 sh -c "echo back > $far/open/again"'
check "nothing is to be removed twice" says "no such entry" 1 fence remove 1

# Delegates.
check "a stranger makes no volume" says "permitted" 1 vos create localhost vicep home.x \
    --as-uid 4711
check "volumes by name" says "joe administers volume home.*" 0 admin add joe --volume 'home.*'
name=$(vos partinfo localhost --json | sed -n 's/.*"partition":"\([^"]*\)".*/\1/p' | head -n 1)
check "a name alone is no room" says "permitted" 1 vos create localhost "$name" home.x --as-uid 4711
check "a partition" says "joe administers partition" 0 admin add joe --partition localhost "$name"
check "both are enough to make one" vos create localhost "$name" home.x --as-uid 4711
check "not one of another name" says "permitted" 1 vos create localhost "$name" other.x \
    --as-uid 4711
check "he sets its quota" vos setfields home.x -maxquota 1G --as-uid 4711
check "a backup" vos backup home.x --as-uid 4711
check "a site of it" vos addsite localhost "$name" home.x --as-uid 4711
check "a release there" vos release home.x --as-uid 4711
check "no move to another server" says "" 1 vos move home.x -toserver two --as-uid 4711
check "what it had begun he lets go" vos unlock home.x --as-uid 4711
check "that server too" says "joe administers server two" 0 admin add joe --server two
check "a site at it" vos addsite two vicep home.x --as-uid 4711
check "is released to" vos release home.x --as-uid 4711
check "then he moves it" vos move home.x -toserver two --as-uid 4711
vos create localhost "$name" secret > /dev/null
check "what is not his he does not" says "does not administer" 1 vos move secret -toserver two \
    --as-uid 4711
vos addsite localhost "$name" secret > /dev/null
check "he releases what lies on his partition" vos release secret --as-uid 4711
check "he appoints nobody" says "system:administrators" 1 admin add jim --volume 'home.*' \
    --as-uid 4711
check "the list" says "partition" 0 admin list
for n in $(admin list --json | sed -n 's/.*"number":\([0-9]*\).*/\1/p'); do
    admin remove "$n" > /dev/null; done
check "taken away, he may no more" says "permitted" 1 vos setfields home.x -maxquota 2G \
    --as-uid 4711
finish
