#!/bin/bash
# No secret gets out of its room (AC-5): passwords, tokens, clients' keys and the cell's are in no
# log, no message, no report, no audit file, no partition and no process's arguments.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
base=$WORK/secrets cell=$WORK/secrets/cell at=$WORK/secrets/tree far=$WORK/secrets/far \
    said=$WORK/secrets/said
trap 'within 60 "$RIALTO" umount "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$far" "$said"
# All that is told, by everybody.
export RIALTO_LOG=trace
secrets() { /usr/bin/python3 "$(dirname "$0")/../lib/secrets.py" "$@"; }
joe() { setpriv --reuid 4711 --regid 4711 --clear-groups "$@"; }
# keeps COMMAND...: what it says stays, to be searched.
keeps() { within 90 "$@" >> "$said/all" 2>&1; }
log_in() { printf '%s\n' "$2" |
    keeps setpriv --reuid 4711 --regid 4711 --clear-groups "$RIALTO" login "$1" --password-stdin \
    --path "$far"; }
first="correct horse battery" second="staple of the wrong sort" wrong="a guess that is none" \
    file="what the file says is for joe"

check "a cell" keeps "$RIALTO" up --dir "$cell" --at "$at" --cell secrets.test \
    --listen 127.0.0.1:0 --encrypt
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$cell/cell.toml")
check "a user" keeps "$RIALTO" pts createuser joe -uid 4711 --dir "$cell"
check "with a password" eval 'printf "%s\n" "$first" |
    keeps "$RIALTO" passwd joe --new-only --password-stdin --path "$at"'
check "a machine that nobody trusts" keeps "$RIALTO" mount --daemon \
    --dir "$base/other" "$address" "$far"
check "a wrong password" refused log_in joe "$wrong"
check "the right one" log_in joe "$first"
check "his own files" eval 'mkdir "$at/joe" && chown 4711:4711 "$at/joe"'
check "are written" joe sh -c "echo '$file' > '$far/joe/file' && sync -f '$far'"
keeps joe cat "$far/joe/none" "$cell/keys/ca.key"
check "another password" eval 'printf "%s\n%s\n" "$first" "$second" |
    keeps setpriv --reuid 4711 --regid 4711 --clear-groups \
        "$RIALTO" passwd joe --password-stdin --path "$far"'
check "the old one is none any more" refused log_in joe "$first"
check "the new one is" log_in joe "$second"
keeps joe "$RIALTO" tokens --path "$far"
keeps joe "$RIALTO" tokens --json --path "$far"
# The server names the tokens that sessions used: joe's newest one is among them after a change that
# was certainly sent, and not after a question that his client may answer.
numbers=
numbers_are_there() {
    joe sh -c "date +%N > '$far/joe/used' && sync -f '$far/joe'"
    numbers=$("$RIALTO" status --json --dir "$cell" | /usr/bin/python3 -c '
import json, sys
for session in json.load(sys.stdin)["report"]["who"]:
    for user in session["users"]:
        if user["token"]:
            print(user["token"])')
    [ -n "$numbers" ]
}

list=$base/list
mount=$(head -n 1 "$base"/other/mounts/*.pid)
check "the cell's keys" eval 'secrets keys "$cell" > "$list"'
# A session that is lost under load takes its token along: joe's next request brings it back.
token_in_memory() {
    local try
    for try in $(seq 20); do
        numbers_are_there && secrets token "$mount" $numbers >> "$list" && return 0
        sleep 0.5
    done
    return 1
}
check "joe's token and its key, from the mount's memory" token_in_memory
for word in first second wrong; do secrets text "password-$word" "${!word}" >> "$list"; done
secrets text file "$file" >> "$list"
check "that is all of them" [ "$(cut -d' ' -f1 "$list" | paste -sd' ')" = \
    "tokens/1.key at-rest/1.key ca.key server.key token signature client-key \
password-first password-second password-wrong file" ]

check "newer keys" eval 'keeps "$RIALTO" keys rotate at-rest --dir "$cell" &&
    keeps "$RIALTO" keys rotate tokens --dir "$cell" &&
        keeps "$RIALTO" keys rotate certificate --dir "$cell"'
keeps "$RIALTO" keys list --dir "$cell"
sleep 11
# Those too; the older ones are listed already.
check "are listed" eval 'secrets keys "$cell" | sed "s/^/new-/" >> "$list"'
check "a fence in the middle" eval \
    'keeps "$RIALTO" fence add --token "${numbers%%[[:space:]]*}" --dir "$cell"
        keeps joe cat "$far/joe/file"; true'
for verb in "status --json" "status" "audit show --json" "fence list --json" \
    "vos examine root.cell --json" "pts examine joe --json" "doctor"; do
    # shellcheck disable=SC2086 # words
    keeps "$RIALTO" $verb --dir "$cell"
done
# What dies leaves no core file, whoever would let it; one that is let does, and there its keys are
# (the control).
dies() { # dies DIR COMMAND...: there are core files afterwards
    local dir=$1; shift
    mkdir -p "$dir"
    (
        cd "$dir" && ulimit -c unlimited || exit
        "$@" "$RIALTO" server --dir "$third" > /dev/null 2>> "$said/all" &
        for _ in $(seq 300); do [ -S "$third/server.sock" ] && break; sleep 0.1; done
        sleep 0.5
        kill -ABRT $!
        wait $!
        rm -f "$third/server.sock"
    )
    [ -n "$(ls "$dir")" ]
}
third=$base/third
if [ "$(cat /proc/sys/kernel/core_pattern)" = core ]; then
    check "a third cell" keeps "$RIALTO" up --dir "$third" --no-mount --cell third.test \
        --listen 127.0.0.1:0 --encrypt
    check "stops" keeps "$RIALTO" down --dir "$third"
    check "its server, let, leaves a core file" dies "$WORK/secrets.core" env RIALTO_CORE=1
    secrets keys "$third" | sed "s/^/third-/" >> "$list"
    grep third-server "$list" > "$WORK/secrets.third"
    check "with its key in it" says "third-server.key (reversed)" 1 secrets search \
        "$WORK/secrets.third" "$WORK/secrets.core"
    rm -rf "$WORK/secrets.core"
    check "as it is it leaves none" refused dies "$base/core" env
else
    skip "core files: kernel.core_pattern is not 'core'"
fi
check "a server that dies" kill -9 "$(head -n 1 "$cell/server.pid")"
check "and comes back" keeps "$RIALTO" server --daemon --dir "$cell"
keeps joe ls "$far/joe"
for pid in "$mount" "$(head -n 1 "$cell/server.pid")" $(cat "$cell"/mounts/*.pid 2> /dev/null |
    head -n 1); do
    cat "/proc/$pid/cmdline" "/proc/$pid/environ" >> "$said/processes"
done

# The search finds what is there: every secret in every form, and the token in the memory of who has
# it.
check "planted" secrets plant "$list" "$base/planted"
plants=$(find "$base/planted" -type f | wc -l)
found() { secrets search "$list" "$base/planted"; }
check "is found, each one" [ "$(found | sed -n 's/:.*//p' | sort -u | wc -l)" = "$plants" ]
rm -rf "$base/planted"
check "the mount's memory has what was taken out of it" secrets holds "$list" client-key "$mount"
# Everything that was written anywhere, but for the keys themselves and the list.
mkdir "$WORK/secrets.keys" && mv "$cell/keys" "$WORK/secrets.keys/cell" &&
    { [ ! -e "$third/keys" ] || mv "$third/keys" "$WORK/secrets.keys/third"; }
mv "$list" "$WORK/secrets.list"
nowhere() { secrets search "$WORK/secrets.list" "$base"; }
check "logs are there to be searched, with all that is told" grep -q DEBUG "$cell/logs/server.log"
check "no secret is anywhere else" nowhere
mv "$WORK/secrets.keys/cell" "$cell/keys"
finish
