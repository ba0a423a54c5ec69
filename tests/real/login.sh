#!/bin/bash
# Who logs in: a machine that the cell does not trust, users of it with passwords, and what they may
# do before, meanwhile and after.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/login cell=$WORK/login/cell at=$WORK/login/tree far=$WORK/login/far
trap 'within 60 "$RIALTO" umount "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$far"
# The user 4711 of the far machine, and another one there.
joe() { setpriv --reuid 4711 --regid 4711 --clear-groups "$@"; }
jim() { setpriv --reuid 4712 --regid 4712 --clear-groups "$@"; }
login() { printf '%s\n' "$2" |
    within 60 setpriv --reuid "$3" --regid "$3" --clear-groups "$RIALTO" login "$1" \
    --password-stdin --path "$far"; }

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell login.test \
    --listen 127.0.0.1:0
port=$(sed -n 's/^listen = ".*:\([0-9]*\)"/\1/p' "$cell/cell.toml")
check "a user" says "User joe has id" 0 within 30 "$RIALTO" pts createuser joe -uid 4711 \
    --dir "$cell"
check "an administrator gives him a password" sh \
    -c "printf 'open sesame\n' | '$RIALTO' passwd joe --new-only --password-stdin --path '$at'"
check "not one that is too short" says "8 to 1024 bytes" 1 sh \
    -c "printf 'short\n' | '$RIALTO' passwd joe --new-only --password-stdin --path '$at'"
check "he has a directory" sh -c \
    "mkdir '$at/joe' && chown 4711:4711 '$at/joe' && chmod 700 '$at/joe' && mkdir '$at/open' &&
        chmod 777 '$at/open'"
check "on this machine the kernel's word is enough" joe sh -c "echo here > '$at/joe/file'"

check "a mount of a machine that nobody trusts" within 60 "$RIALTO" mount --daemon \
    --dir "$base/other" "127.0.0.1:$port" "$far"
check "its superuser is nobody" says "Permission denied" 1 touch "$far/mine"
check "what he makes where everybody may is nobody's" sh \
    -c "touch '$far/open/x' && [ \"\$(stat -c %u '$at/open/x')\" = 65534 ]"
check "its user is nobody either" says "Permission denied" 2 joe sh \
    -c "exec 2>&1; echo there > '$far/joe/file'"
check "tokens: none" says "no token" 1 joe "$RIALTO" tokens --path "$far"
check "a wrong password" says "wrong password, or no such user" 1 login joe "close sesame" 4711
check "nobody at all" says "wrong password, or no such user" 1 login nobody "open sesame" 4711
check "the right one" says "logged in to login.test as joe" 0 login joe "open sesame" 4711
check "tokens: one" says "in login.test, by password" 0 joe "$RIALTO" tokens --path "$far"
check "as JSON" says '"user":"joe"' 0 joe "$RIALTO" tokens --json --path "$far"
check "he writes" joe sh -c "echo there > '$far/joe/file' && cat '$far/joe/file' > /dev/null"
check "which is seen at the server's machine" [ "$(cat "$at/joe/file")" = there ]
check "what he makes is his" sh -c \
    "setpriv --reuid 4711 --regid 4711 --clear-groups touch '$far/open/joe' &&
        [ \"\$(stat -c %u '$at/open/joe')\" = 4711 ]"
check "the other user of that machine is nobody still" says "Permission denied" 1 jim sh \
    -c "exec 2>&1; cat '$far/joe/file'"
check "he changes his password" eval "printf 'open sesame\nxyzzy plugh\n' |
    joe '$RIALTO' passwd joe --password-stdin --path '$far'"
check "nobody else does" says "neither that user nor an administrator" 1 eval \
    "printf 'xyzzy plugh\nanother one\n' |
        jim '$RIALTO' passwd joe --password-stdin --path '$far'"
check "he logs out" joe "$RIALTO" logout --path "$far"
check "and is nobody with the next request" says "Permission denied" 2 joe sh \
    -c "exec 2>&1; echo gone > '$far/joe/new'"
check "the old password is none" says "wrong password" 1 login joe "open sesame" 4711
mkdir -p "$WORK/programs"
for name in klog tokens unlog; do ln -s "$RIALTO" "$WORK/programs/$name"; done
there() { (cd "$far" && USER=joe joe "$WORK/programs/$1" "${@:2}"); }
check "klog logs in to the tree of its directory, with a note" says "-lifetime does nothing" 0 \
    eval "printf 'xyzzy plugh\n' | there klog -pipe -life 5:00:00 -cell login.test"
check "tokens shows it" says "in login.test, by password" 0 there tokens
check "a password is not taken from the command line" says "other users would see it" 2 there \
    klog joe -password "xyzzy plugh"
check "unlog logs out" there unlog -cell login.test
check "of that tree" says "no token" 1 there tokens
check "the new one is" says "logged in" 0 login joe "xyzzy plugh" 4711
check "locked out by an administrator" within 30 "$RIALTO" pts setfields joe -locked yes \
    --dir "$cell"
check "he is nobody at once" says "Permission denied" 2 joe sh \
    -c "exec 2>&1; echo gone > '$far/joe/new'"
check "and let in again" within 30 "$RIALTO" pts setfields joe -locked no --dir "$cell"
check "his token is good still" joe sh -c "echo back > '$far/joe/new'"
for _ in 1 2 3 4 5; do login joe "guess and guess" 4711 > /dev/null 2>&1; done
check "who guesses waits" says "too many wrong attempts" 1 login joe "xyzzy plugh" 4711
check "a newer key signs tokens" says "made key 2" 0 "$RIALTO" keys rotate tokens --dir "$cell"
check "what the older one signed is good" joe sh -c "echo again > '$far/joe/new'"
check "a newer certificate" says "makes a new certificate" 0 "$RIALTO" keys rotate certificate \
    --dir "$cell"
shown() { openssl s_client -connect "127.0.0.1:$port" \
    -servername server.rialto.internal < /dev/null 2> /dev/null | openssl x509 -noout -serial; }
before=$(shown)
renewed() { for _ in $(seq 300); do [ "$(shown)" != "$before" ] && [ -n "$(shown)" ] &&
    return 0; sleep 0.1; done; return 1; }
check "is shown without a restart" renewed
check "and disturbs nobody" joe sh -c "echo again > '$far/joe/new' && cat '$far/joe/new'"
# A new authority: who knew the old one by its fingerprint follows, if he comes by before the old
# one is retired.
third=$base/third
mkdir "$third"
visits() { within 60 "$RIALTO" mount --daemon --dir "$base/$1" "127.0.0.1:$port" "$third" &&
    within 60 "$RIALTO" umount --dir "$base/$1" "$third"; }
check "two machines see the cell for the first time" sh \
    -c "$(declare -f within visits); RIALTO='$RIALTO' base='$base' port='$port' third='$third'
        visits follows && visits stays"
check "a newer authority" says "signed by the one before" 0 "$RIALTO" keys rotate authority \
    --dir "$cell"
check "is listed with the one before" says "before it:" 0 "$RIALTO" keys list --dir "$cell"
issuer() { openssl s_client -connect "127.0.0.1:$port" \
    -servername server.rialto.internal < /dev/null 2> /dev/null | openssl x509 -noout -issuer; }
made_by() { for _ in $(seq 300); do [ "$(issuer)" != "$was" ] && [ -n "$(issuer)" ] &&
    return 0; sleep 0.1; done; return 1; }
was=$(openssl x509 -noout -subject -in <(tac "$cell/keys/ca.pem" | sed '/BEGIN CERT/q' | tac) |
    sed 's/^subject/issuer/')
check "has made the server's certificate without a restart" made_by
check "which disturbs nobody" joe sh -c "echo again > '$far/joe/new' && cat '$far/joe/new'"
check "a machine comes by" visits follows
check "and remembers both" [ "$(tail -n 1 "$base/follows/known_cells" | wc -w)" = 3 ]
check "the old one is retired" says "count no more" 0 "$RIALTO" keys retire --dir "$cell"
certificates() { # how many certificates the server shows
    openssl s_client -showcerts -connect "127.0.0.1:$port" -servername server.rialto.internal \
        < /dev/null 2> /dev/null | grep -c 'BEGIN CERT'
}
retired() {
    for _ in $(seq 300); do [ "$(certificates)" = 2 ] && return 0; sleep 0.1; done; return 1
}
check "and shown no more" retired
check "who followed comes by" visits follows
check "who did not is told both fingerprints" says "Another machine may intercept the connection" \
    1 visits stays
check "nobody was disturbed" joe sh -c "echo again > '$far/joe/new' && cat '$far/joe/new'"
# Groups of the cell that have a gid are what their members are in.
check "a group with a gid" sh -c \
    "'$RIALTO' pts creategroup staff --dir '$cell' &&
        '$RIALTO' pts setfields staff -gid 5000 --dir '$cell'"
check "has a directory" sh -c "mkdir '$at/staff' && chgrp 5000 '$at/staff' && chmod 770 '$at/staff'"
staff() { setpriv --reuid 4711 --regid 4711 --groups 5000 "$@"; }
check "who is not in it stays out" says "Permission denied" 2 staff sh \
    -c "exec 2>&1; echo in > '$far/staff/file'"
check "joe comes in" within 30 "$RIALTO" pts adduser joe staff --dir "$cell"
check "and writes" staff sh -c "echo in > '$far/staff/file' && cat '$far/staff/file'"
check "joe goes" within 30 "$RIALTO" pts removeuser joe staff --dir "$cell"
check "and makes nothing more" says "Permission denied" 2 staff sh \
    -c "exec 2>&1; echo in > '$far/staff/other'"
# The numbers of that machine are its own: somebody whose number there is the cell's jim, and nobody
# who is joe.
check "jim is a user" sh -c "'$RIALTO' pts createuser jim -uid 4713 --dir '$cell' &&
    printf 'xyzzy plover\n' | '$RIALTO' passwd jim --new-only --password-stdin --path '$at'"
check "he has a directory" sh -c \
    "mkdir '$at/jim' && chown 4713:4713 '$at/jim' && chmod 700 '$at/jim'"
elsewhere() { setpriv --reuid 2000 --regid 2000 --clear-groups "$@"; }
check "he logs in under another number" says "as jim" 0 login jim "xyzzy plover" 2000
check "and makes files" elsewhere sh -c \
    "echo mine > '$far/jim/file' && mkdir '$far/jim/dir' && echo more >> '$far/jim/file' &&
        chmod 600 '$far/jim/file' && mv '$far/jim/file' '$far/jim/dir/file' &&
            cat '$far/jim/dir/file'"
check "which are his, here" [ "$(elsewhere stat -c %u:%a "$far/jim/dir/file")" = 2000:600 ]
check "and in the cell" sh -c "sync; [ \"\$(stat -c %u '$at/jim/dir/file')\" = 4713 ]"
namesake() { setpriv --reuid 4713 --regid 4713 --clear-groups "$@"; }
check "who only has his number there does not get in" says "Permission denied" 1 namesake sh \
    -c "exec 2>&1; cat '$far/jim/dir/file'"
check "nor lists" says "Permission denied" 2 namesake sh -c "exec 2>&1; ls '$far/jim/dir'"
# In one breath: what a mount has not sent by then is a second old at most.
check "jim writes, and logs out at once" elsewhere /usr/bin/python3 -c "
import os
os.mkdir('$far/jim/last')
os.chdir('$far/jim/last')
for i in range(50):
    with open(str(i), 'w') as file:
        print(i, file=file)
os.setxattr('.', 'system.rialto.logout', b'')"
check "what he wrote is there" sh -c "[ \$(cat '$at/jim/last/'* | wc -l) = 50 ]"
check "he logs in again" says "as jim" 0 login jim "xyzzy plover" 2000
check "jim logs out" elsewhere "$RIALTO" logout --path "$far"
check "what was read is not read any more" says "Permission denied" 1 elsewhere sh \
    -c "exec 2>&1; cat '$far/jim/dir/file'"
check "nor by who has his number" says "Permission denied" 1 namesake sh \
    -c "exec 2>&1; cat '$far/jim/dir/file'"
check "joe, who has the same number here and there, logs out" joe "$RIALTO" logout --path "$far"
check "and reads nothing that is kept" says "Permission denied" 1 joe sh \
    -c "exec 2>&1; cat '$far/joe/file'"
# What a daemon has in memory, keys and tokens among it, gets into no core file; another program's
# does.
cores() {
    local dir=$base/cores
    rm -rf "$dir" && mkdir -p "$dir" && (cd "$dir" && ulimit -c unlimited && "$@" > /dev/null 2>&1)
    [ -n "$(ls "$dir")" ]
}
if [ "$(cat /proc/sys/kernel/core_pattern)" = core ]; then
    within 90 "$RIALTO" up --dir "$base/third" --no-mount --cell third.test > /dev/null &&
        within 60 "$RIALTO" down --dir "$base/third" > /dev/null
    killed() { "$@" "$RIALTO" server --dir "$base/third" & for _ in $(seq 300); do
        [ -S "$base/third/server.sock" ] &&
            break; sleep 0.1; done; sleep 0.5; kill -ABRT $!; wait $!; rm \
            -f "$base/third/server.sock"; }
    check "a server that lets it be leaves a core file" cores killed env RIALTO_CORE=1
    check "a server as it is does not" refused cores killed env
    rm -rf "$base/cores"
else
    skip "core files: kernel.core_pattern is not 'core'"
fi
check "no password is in any log or record" sh \
    -c "! grep -rqF -e 'open sesame' -e 'xyzzy plugh' -e 'guess and guess' -e 'xyzzy plover' \
        '$cell' '$base/other'"
finish
