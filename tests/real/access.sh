#!/bin/bash
# Who may do what, as people use it: users and groups.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
cell=$WORK/access/cell at=$WORK/access/tree
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell access.test \
    --listen 127.0.0.1:0
ln -sf "$RIALTO" "$WORK/access/pts"
pts() { within 30 "$WORK/access/pts" "$@" -dir "$cell"; }
# Where a command answers many lines: they are these.
lines() { local wanted=$1; shift; [ "$("$@")" = "$wanted" ]; }

# Another user of the server's machine. In a directory that everybody may pass, so that only the
# cell's own modes keep him out.
if [ "$(id -u)" = 0 ]; then
    other() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
    closed() {
        echo "a secret of the tree" > "$at/secret" && sync "$at/secret" || return 1
        other test -x "$cell" ||
            { echo "another user cannot even pass $cell, so this shows nothing"; return 1; }
        refused other ls "$cell" || return 1
        local file bad=0
        while IFS= read -r file; do
            other test -r "$file" || other test -w "$file" &&
                { echo "another user can use $file ($(stat -c %A "$file"))"; bad=1; }
            [ -d "$file" ] && other ls "$file" > /dev/null 2>&1 &&
                { echo "another user can list $file"; bad=1; }
        done < <(find "$cell" -mindepth 1 -path "$cell/mnt" -prune -o -print)
        [ -e "$cell/celldb/CURRENT" ] && [ -e "$cell/vicep/meta/CURRENT" ] && [ $bad = 0 ]
    }
    check "another user of the machine reads nothing of the server's files" closed
    widen() { find "$cell/vicep/meta" "$cell/celldb" -type f -exec chmod 644 {} + &&
        chmod 755 "$cell" "$cell/vicep" "$cell/vicep/meta" "$cell/celldb" "$cell/logs"; }
    check "files with other modes, as earlier servers made them" widen
    check "are found by the doctor" says "other users of this machine can use" 0 "$RIALTO" doctor \
        --dir "$cell"
    check "the server goes down" within 60 "$RIALTO" down --dir "$cell"
    check "and up" within 90 "$RIALTO" up --dir "$cell" --at "$at"
    check "which closes them" closed
    check "and says so in its log" grep -q "other users of this machine could use it" \
        "$cell/logs/server.log"
    check "the doctor is content" says "can read nothing of the server's files" 0 "$RIALTO" doctor \
        --dir "$cell"
fi

check "a user gets the first number" says "User joe has id 1" 0 pts createuser joe -uid 4711
check "several users, with numbers" says "User jim has id 502" 0 pts createuser -name jane jim \
    -id 501 502
check "a name that is taken is refused" says "entry exists" 1 pts createuser joe
check "and one that nobody may have" says "without a colon" 1 pts createuser joe:x
check "a group of a user" says "group joe:friends has id -205" 0 pts creategroup joe:friends \
    -owner joe
check "somebody is put into it" pts adduser jane joe:friends
check "not twice" says "entry exists" 1 pts adduser jane joe:friends
check "it shows who is in it" lines "Members of joe:friends (id: -205) are:
  jane" pts membership joe:friends
check "and what she is in" lines "Groups jane (id: 501) is a member of:
  joe:friends" pts membership -nameorid jane
check "examine" lines "Name: joe:friends, id: -205, owner: joe, creator: system:administrators,
  membership: 1, flags: S-M--, group quota: 0." pts examine joe:friends

check "joe makes a group himself" says "group joe:crew has id -206" 0 pts creategroup joe:crew \
    -as-uid 4711
check "and puts jim into it" pts adduser jim joe:crew -as-uid 4711
check "but makes no users" says "system:administrators" 1 pts createuser jack -as-uid 4711
check "nor groups in another's name" says "OWNER:NAME" 1 pts creategroup jane:crew -as-uid 4711
check "nor himself an administrator" says "its owner may" 1 pts adduser joe system:administrators \
    -as-uid 4711
check "an administrator does that" pts adduser joe system:administrators
check "from then on he makes users" says "User jack has id" 0 pts createuser jack -as-uid 4711
check "taken out" pts removeuser joe system:administrators
check "he does not, with the next request" says "its owner may" 1 pts createuser jill -as-uid 4711

check "groups in groups" pts adduser joe:friends joe:crew
check "show who is in them through others" lines "Expanded Members of joe:crew (id: -206) are:
  joe:friends
  jane
  jim" pts membership joe:crew -expandgroups
check "a set of hosts" says "10.1.0.0/16 has id -207" 0 pts createuser 10.1.0.0/16
check "who gets another name" pts rename joe joseph
check "gives it to his groups" lines "Groups owned by joseph (id: 1) are:
  joseph:crew
  joseph:friends" pts listowned joseph
check "a group with another owner" pts chown joseph:crew jane
check "has the new one's name" says "owner: jane" 0 pts examine jane:crew
check "flags" pts setfields jane:crew -access S-mar
check "are shown" says "flags: S-mar" 0 pts examine jane:crew
check "wrong ones are explained" says "five letters" 1 pts setfields jane:crew -access XYZ
check "who is removed" pts delete jane
check "leaves groups that nobody owns" says "jane:crew" 0 pts listowned 0
check "all of them, in JSON" sh -c \
    "'$WORK/access/pts' listentries -users -groups --json -dir '$cell' | python3 -c '
import json, sys
all = {one[\"name\"]: one for one in map(json.loads, sys.stdin)}
assert all[\"joseph\"][\"uid\"] == 4711, all
assert all[\"system:administrators\"][\"id\"] == -204 and \"jane\" not in all, all'"
check "numbers go on" says "Max user id is 503 and max group id is -207" 0 pts listmax
check "also after a restart of the server" within 60 "$RIALTO" down --dir "$cell"
check "which comes back" within 90 "$RIALTO" up --dir "$cell" --at "$at"
check "with everybody" says "membership: 0" 0 pts examine joseph
finish
