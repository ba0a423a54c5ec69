#!/bin/bash
# A volume where access lists decide: an administrator makes it, owners give and deny with fs, and
# other users of the machine meet what lists say.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
home=$WORK/acl/home local_dir=$WORK/acl/local
mkdir -p "$home"
trap 'within 60 "$RIALTO" umount --lazy --dir "$local_dir" "$home" > /dev/null 2>&1' EXIT

vos() { within 120 "$RIALTO" vos "$@" --dir "$CELL"; }
fs() { within 30 "$RIALTO" fs "$@"; }
# as UID COMMAND...: another user, whom the cell knows by no name.
as() { local uid=$1; shift; within 30 setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
lines() { local wanted=$1; shift; [ "$("$@")" = "$wanted" ]; }

check "a volume" vos create real.acl
check "in which mode bits decide" says "mode bits" 0 vos examine real.acl
check "what lists would change is told" says "Only administrators" 0 vos setfields real.acl \
    -model acl --dry-run
check "for whom" says "system:administrators rlidwka" 0 vos setfields real.acl -model acl --dry-run
check "with a first list too" says "system:anyuser rl" 0 vos setfields real.acl -model acl \
    -acl system:anyuser read --dry-run
check "in JSON" sh -c "'$RIALTO' vos setfields real.acl -model acl -acl anonymous l --dry-run \
    --json --dir '$CELL' | python3 -c '
import json, sys
list = json.load(sys.stdin)[\"list\"]
assert list[1] == {\"name\": \"anonymous\", \"rights\": \"l\"}, list'"
check "not for nobody" says "no such user or group" 1 vos setfields real.acl -model acl \
    -acl nobody:there read
check "not for half a pair" says "each with its rights" 1 vos setfields real.acl -model acl \
    -acl system:anyuser read joe
check "and not with mode bits" says "leave -acl out" 1 vos setfields real.acl -model posix \
    -acl system:anyuser read
check "and not done" says "mode bits" 0 vos examine real.acl
check "lists decide" vos setfields real.acl -model acl
check "which is shown" says "access lists" 0 vos examine real.acl
check "twice is said" says "decide already" 0 vos setfields real.acl -model acl
check "it is mounted" within 60 "$RIALTO" mount --daemon --dir "$local_dir" \
    --volume real.acl "unix:$CELL/server.sock" "$home"
check "the list of its root" lines "Access list for $home is
Normal rights:
  system:administrators rlidwka" fs listacl "$home"

mkdir "$home/open" "$home/shut" && echo text > "$home/open/file"
chmod 755 "$home/open/file" && chown 4001 "$home/shut"
check "others do not get in" says "Permission denied" 2 as 4001 ls "$home"
check "until everybody may look" fs setacl "$home" system:anyuser l
check "then they see names" lines "open
shut" as 4001 ls "$home"
check "directories that were made before keep their lists" says "Permission denied" 2 as 4001 ls \
    "$home/open"
check "reading is given" fs sa -dir "$home/open" -acl system:anyuser read
check "and had at once" lines text as 4001 cat "$home/open/file"
check "writing is not" says "Permission denied" 2 as 4001 sh -c "echo more >> '$home/open/file'"
check "nor making" says "Permission denied" 1 as 4001 touch "$home/open/new"
check "access(2) says the same" refused as 4001 test -w "$home/open/file"
check "and of reading too" as 4001 test -r "$home/open/file"
check "what one may do is said" says "Callers access to $home/open is rl" 0 as 4001 "$RIALTO" fs \
    getcalleraccess "$home/open"
check "what is taken away" fs sa "$home/open" system:anyuser none
check "is gone at once" says "Permission denied" 1 as 4001 cat "$home/open/file"
check "a negative entry" fs sa "$home/open" system:anyuser rl
check "denies" fs sa "$home/open" anonymous r -negative
check "what another gives" says "Permission denied" 1 as 4001 cat "$home/open/file"
check "the list has both" lines "Access list for $home/open is
Normal rights:
  system:administrators rlidwka
  system:anyuser rl
Negative rights:
  anonymous r" fs listacl "$home/open"
check "in JSON" sh -c "'$RIALTO' fs listacl '$home/open' --json | python3 -c '
import json, sys
negative = json.load(sys.stdin)[\"negative\"]
assert negative == [{\"name\": \"anonymous\", \"rights\": \"r\"}], negative'"

check "an owner administers" as 4001 "$RIALTO" fs setacl "$home/shut" system:anyuser rlidwk
check "so others make files there" as 4002 sh -c "echo theirs > '$home/shut/note'"
check "and read them" lines theirs as 4003 cat "$home/shut/note"
check "but administer nothing" says "may change it" 1 as 4002 "$RIALTO" fs setacl "$home/shut" \
    system:anyuser all
check "a drop box" as 4001 "$RIALTO" fs setacl "$home/shut" system:anyuser li -clear
check "takes files" as 4002 sh -c "echo secret > '$home/shut/dropped'"
check "and shows them to nobody" says "Permission denied" 1 as 4003 cat "$home/shut/dropped"
check "a list is copied" fs copyacl "$home/open" "$home/shut" -clear
check "entry by entry" test "$(fs listacl "$home/open" | tail -n +2)" = \
    "$(fs listacl "$home/shut" | tail -n +2)"
mkdir "$home/of commands"
check "the commands that -cmd shows give the list" sh -c "cd '$home' && mkdir -p '$WORK/names' &&
    ln -sf '$RIALTO' '$WORK/names/fs' && PATH='$WORK/names':\$PATH &&
    fs listacl open -cmd | sed \"s/-dir open/-dir 'of commands' -clear/\" > '$WORK/commands' &&
    sed -i 's/ -clear\\(.* -negative\\)$/\\1/' '$WORK/commands' && . '$WORK/commands'"
check "entry by entry, too" test "$(fs listacl "$home/open" | tail -n +2)" = \
    "$(fs listacl "$home/of commands" | tail -n +2)"
check "new directories begin with it" mkdir "$home/shut/below"
check "and all of it" test "$(fs listacl "$home/shut" | tail -n +2)" = \
    "$(fs listacl "$home/shut/below" | tail -n +2)"

check "wrong letters are explained" says "is no right" 1 fs setacl "$home" system:anyuser rx
check "and a missing half" says "each with its rights" 1 fs setacl "$home" system:anyuser
check "initial lists too" says "there are no initial lists" 1 fs listacl "$home" -id

check "a file has its directory's" lines "Access list for $home/open/file is that of its directory:
Normal rights:
  system:administrators rlidwka
  system:anyuser rl
Negative rights:
  anonymous r" fs listacl "$home/open/file"
check "and may get its own, which begins so" fs setacl "$home/open/file" system:anyuser write
check "with what was changed" lines "Access list for $home/open/file is
Normal rights:
  system:administrators rlidwka
  system:anyuser rlidwk
Negative rights:
  anonymous r" fs listacl "$home/open/file"
check "its own in JSON" says '"own":true' 0 fs listacl "$home/open/file" --json
check "then it decides: to write" as 4001 sh -c "echo more >> '$home/open/file'"
check "but not to read" says "Permission denied" 1 as 4001 cat "$home/open/file"
check "nor to remove" says "Permission denied" 1 as 4001 rm "$home/open/file"
check "what is said of it is the same" says "is lwk" 0 as 4001 "$RIALTO" fs getcalleraccess \
    "$home/open/file"
check "nobody becomes its administrator by his directory" refused as 4001 "$RIALTO" fs setacl \
    "$home/open/file" system:anyuser all
check "a negative entry is taken out" fs setacl "$home/open/file" anonymous none -negative
check "and it is read" as 4001 cat "$home/open/file"
mkdir "$home/shelf" && fs setacl "$home/shelf" system:anyuser l -clear
check "it is moved" mv "$home/open/file" "$home/shelf/file"
check "with its list" as 4001 sh -c "echo moved >> '$home/shelf/file'"
check "and no other one is" sh -c "echo none > '$home/shelf/none'"
check "so that stays shut" says "Permission denied" 1 as 4001 cat "$home/shelf/none"
check "a list is copied to a file" fs copyacl "$home/shelf/file" "$home/shelf/none"
check "which is open now" as 4001 cat "$home/shelf/none"
check "a file's list may be a stranger's to administer" fs setacl "$home/shelf/none" \
    system:anyuser rwa
check "who takes it away" as 4001 "$RIALTO" fs setacl "$home/shelf/none" -inherit
check "and has nothing then" says "Permission denied" 1 as 4001 cat "$home/shelf/none"
check "a root's is not taken away so" says "vos setfields" 1 fs setacl "$home" -inherit
check "a directory's is" fs setacl "$home/shut/below" -inherit
check "and said whose" says "below is that of the directory above:" 0 fs listacl "$home/shut/below"
check "an inherited list is cleaned where it is" says "clean that one" 0 fs cleanacl \
    "$home/shut/below"

check "a snapshot" vos snapshot create real.acl before
check "a file's list is changed after it" fs setacl "$home/shelf/file" system:anyuser none
check "and counts at once" says "Permission denied" 1 as 4001 cat "$home/shelf/file"
check "but not there" as 4001 grep -q moved "$home/.snapshots/before/shelf/file"
check "it is dumped" vos dump real.acl -file "$WORK/acl/dump"
fs setacl "$home/shelf/file" -inherit
check "and restored" vos restore -name real.acl2 -file "$WORK/acl/dump"
second=$WORK/acl/second
mkdir -p "$second"
check "mounted" within 60 "$RIALTO" mount --daemon --dir "$local_dir" \
    --volume real.acl2 "unix:$CELL/server.sock" "$second"
check "it has the list that the file had" lines "Access list for $second/shelf/file is
Normal rights:
  system:administrators rlidwka" fs listacl "$second/shelf/file"
check "unmounted" within 60 "$RIALTO" umount --dir "$local_dir" "$second"
check "removed" vos remove real.acl2

# Twelve at once: nobody's change is lost.
for n in $(seq 1 12); do
    within 30 "$RIALTO" pts creategroup "many$n" --dir "$CELL" > /dev/null; done
changes=()
for n in $(seq 1 12); do fs setacl "$home/open" "many$n" rl & changes+=($!); done
wait "${changes[@]}"
check "changes of a list at the same moment are all there" test \
    "$(fs listacl "$home/open" | grep -c '  many')" = 12
check "attributes say the same" says "give -101 rl" 0 getfattr --only-values \
    -n rialto.acl "$home/open"
check "and the caller's rights" lines rlidwka getfattr --only-values -n rialto.rights "$home/open"
check "where mode bits decide there are none" says "vos setfields" 1 fs listacl "$A"
check "who may administer a file, and neither read nor write it" fs setacl "$home/shelf/none" \
    system:anyuser a -clear
check "does so" as 4001 "$RIALTO" fs setacl "$home/shelf/none" anonymous r
check "and sees it" says "anonymous r" 0 as 4001 "$RIALTO" fs listacl "$home/shelf/none"
# Lists that end and begin under a mount.
mkdir "$home/both" "$home/closed" && fs setacl "$home/closed" system:anyuser none &&
    echo text > "$home/both/file" && chmod 755 "$home/both" && chmod 644 "$home/both/file"
check "what nobody was let into" says "Permission denied" 1 as 4001 cat "$home/both/file"
check "mode bits decide" vos setfields real.acl -model posix
chmod 755 "$home"
check "at once" lines text as 4001 cat "$home/both/file"
check "and nobody writes it" says "Permission denied" 2 as 4001 sh \
    -c "echo more >> '$home/both/file'"
check "lists decide again" vos setfields real.acl -model acl -acl system:anyuser l
check "at once" says "Permission denied" 1 as 4001 cat "$home/both/file"
check "rights are given in the mount that mode bits ruled a moment ago" fs setacl "$home/both" \
    system:anyuser rlidwk
check "and had at once" lines text as 4001 cat "$home/both/file"
check "to make files too" as 4001 sh -c "echo new > '$home/both/new' && rm '$home/both/new'"
check "access(2) says the same" as 4001 sh \
    -c "test -w '$home/both' && test -r '$home/both/file' && ! test -r '$home/closed'"
# What the kernel asks of the mount for who owns nothing, once it has seen all.
tracing=/sys/kernel/tracing/events/fuse/fuse_request_send/enable
if [ -e "$tracing" ]; then
    look() { as 4001 sh -c 'for _ in 1 2 3 4 5 6 7 8 9 10; do stat -c %n "$1" &&
        test -r "$1"; done' sh "$home/both/file"; }
    asked() {
        look > /dev/null
        echo > /sys/kernel/tracing/trace && echo 1 > "$tracing"
        look > /dev/null
        echo 0 > "$tracing"
        ! grep "connection $(stat -c %d "$home") " /sys/kernel/tracing/trace
    }
    check "a walk from the root asks nothing" asked
else
    skip "counting requests needs the kernel's tracepoints" \
        "(mount -t tracefs none /sys/kernel/tracing)"
fi
check "it is unmounted" within 60 "$RIALTO" umount --dir "$local_dir" "$home"
check "mode bits decide again" vos setfields real.acl -model posix
check "then the first list is another" vos setfields real.acl -model acl -acl system:anyuser read
check "which is given once" says "the root has one" 1 vos setfields real.acl -model acl \
    -acl system:anyuser write
check "it is mounted again" within 60 "$RIALTO" mount --daemon --dir "$local_dir" \
    --volume real.acl "unix:$CELL/server.sock" "$home"
check "with that list" lines "Access list for $home is
Normal rights:
  system:administrators rlidwka
  system:anyuser rl" fs listacl "$home"
check "unmounted again" within 60 "$RIALTO" umount --dir "$local_dir" "$home"
check "its snapshot goes" vos remove real.acl.snapshot.before
check "and goes" vos remove real.acl
finish
