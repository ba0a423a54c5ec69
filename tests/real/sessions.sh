#!/bin/bash
# Sessions with tokens of their own: one user of a machine who is several people to the cell at
# once, in shells that 'rialto pagsh' runs.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/sessions cell=$WORK/sessions/cell at=$WORK/sessions/tree far=$WORK/sessions/far \
    home=$WORK/sessions/home
# Users of other numbers must reach the program and their own directory.
open=$(mktemp -d /var/tmp/rialto-sessions.XXXXXX)
trap 'within 60 "$RIALTO" umount --lazy "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1; rm -rf "$open"' EXIT
mkdir -p "$base" "$open/far" "$open/home"
far=$open/far home=$open/home
cp "$RIALTO" "$open/rialto"
chmod 755 "$open"
chown 4711:4711 "$home"
# Users may open the device nearly everywhere; where they may not, these here may open another node
# of it.
mknod -m 666 "$open/fuse" c 10 229
with_device() {
    unshare --mount sh -c 'mount --bind "$0/fuse" /dev/fuse && exec "$@"' "$open" "$@"
}
joe() { with_device timeout --kill-after=10 120 setpriv --reuid 4711 --regid 4711 \
    --clear-groups env HOME="$home" RIALTO_HOME="$home" SHELL=/bin/sh PATH="$open:$PATH" \
    FAR="$far" "$@"; }
# The mount keeps a directory for each session, until it is over.
sessions() {
    find "$base/other/cache" -mindepth 3 -maxdepth 3 -path '*-far/sessions/*' 2> /dev/null |
        wc -l; }
# Sessions end a moment after their last process.
becomes() { for _ in $(seq 300); do [ "$(sessions)" = "$1" ] &&
    return 0; sleep 0.1; done; return 1; }
over() { becomes 0; }
socket() { find /run/rialto -name "*$(basename "$open" | sed 's/-/*/g')*.sock" -print -quit; }
mounts_here() { grep -c " $far " /proc/self/mountinfo; }

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell sessions.test \
    --listen 127.0.0.1:0
port=$(sed -n 's/^listen = ".*:\([0-9]*\)"/\1/p' "$cell/cell.toml")
for user in joe admin; do
    uid=$([ $user = joe ] && echo 4711 || echo 4800)
    check "a user, $user" within 30 "$RIALTO" pts createuser $user -uid "$uid" --dir "$cell"
    check "with a password" sh -c "printf 'open sesame\n' |
        '$RIALTO' passwd $user --new-only --password-stdin --path '$at'"
    check "and a directory" sh -c "mkdir '$at/$user' &&
        echo of $user | tee '$at/$user/file' > '$at/$user/unread' &&
            chown -R $uid:$uid '$at/$user' && chmod 700 '$at/$user'"
done
check "a device node" mknod -m 666 "$at/null" c 1 3
check "a mount of a machine that nobody trusts" within 60 "$RIALTO" mount --daemon \
    --dir "$base/other" "127.0.0.1:$port" "$far"

enters() { joe unshare --user --map-current-user --mount true; }
if ! enters > /dev/null 2>&1; then
    skip "this machine gives users no name spaces of their own; root's sessions only"
else
    check "a session begins without a token" says "no token" 1 joe rialto pagsh --path "$far" \
        -c 'cd "$FAR" && rialto tokens'
    check "what it ends with is the shell's" says "" 7 joe rialto pagsh --path "$far" -c 'exit 7'
    check "a signal too" says "" 143 joe rialto pagsh --path "$far" -- /bin/sh -c 'kill -TERM $$'
    check "a program instead of a shell" says "of a program" 0 joe rialto pagsh --path "$far" \
        -- echo of a program
    check "who is logged in outside" says "logged in" 0 joe sh \
        -c 'echo "open sesame" | rialto login joe --password-stdin --path "$FAR"'
    check "is joe there" says "of joe" 0 joe cat "$far/joe/file"
    check "a token outside is none inside" says "Permission denied" 1 joe rialto pagsh \
        --path "$far" -c 'LC_ALL=C cat "$FAR/joe/file"'
    cat > "$open/two" <<'TWO'
set -e
cd /
echo "open sesame" | rialto login admin --password-stdin --path "$FAR"
cat "$FAR/admin/file"
LC_ALL=C cat "$FAR/joe/file" 2>&1 && exit 1
echo changed by admin > "$FAR/admin/new"
touch "$HOME/inside"
while [ ! -e "$HOME/looked" ]; do sleep 0.05; done
cat "$FAR/admin/new"
TWO
    joe rialto pagsh --path "$far" -c "sh $open/two" > "$open/said" 2>&1 &
    session=$!
    for _ in $(seq 600); do [ -e "$home/inside" ] && break; sleep 0.1; done
    check "meanwhile he is joe outside" says "of joe" 0 joe cat "$far/joe/file"
    check "and not admin" says "Permission denied" 1 joe env LC_ALL=C cat "$far/admin/file"
    check "who a token says he is" says "joe" 0 joe rialto tokens --path "$far"
    check "nobody else sees the session's mount" [ "$(mounts_here)" = 1 ]
    touch "$home/looked"
    wait $session; ended=$?
    check "inside he was admin" sh -c \
        "[ $ended = 0 ] && grep -q 'of admin' '$open/said' &&
            grep -q 'Permission denied' '$open/said' &&
                grep -q 'changed by admin' '$open/said' || { cat '$open/said'; false; }"
    check "what he wrote there is the cell's" [ "$(cat "$at/admin/new")" = "changed by admin" ]
    check "nothing of the session is left" over
    check "its tokens are gone with it" says "no token" 1 joe rialto pagsh --path "$far" \
        -c 'rialto tokens --path "$FAR"'
    check "a session in a session has its own too" says "no token" 1 joe rialto pagsh \
        --path "$far" -c 'echo "open sesame" | rialto login admin --password-stdin --path "$FAR" &&
            rialto pagsh --path "$FAR" -c "rialto tokens --path $FAR"'
    check "the shell may not do more than outside" says "0000000000000000" 0 joe rialto pagsh \
        --path "$far" -c 'grep CapEff /proc/self/status'
    check "it cannot take the mount away" says "" 1 joe rialto pagsh --path "$far" \
        -c 'LC_ALL=C umount "$FAR" 2> /dev/null && exit 0; exit 1'
    check "device nodes have no numbers there" says "0:0" 0 joe rialto pagsh --path "$far" \
        -c 'stat -c %t:%T "$FAR/null"'
    check "what goes on in the background keeps it" says "" 0 joe rialto pagsh --path "$far" -c '
        echo "open sesame" | rialto login admin --password-stdin --path "$FAR"
        (while [ ! -e "$HOME/end" ]; do sleep 0.05; done
            echo later > "$FAR/admin/late") > /dev/null 2>&1 &'
    check "its session alone is there" becomes 1
    touch "$home/end"
    check "and ends with it" over
    check "it wrote with its token" [ "$(cat "$at/admin/late")" = later ]
    check "what is no name of root's is not believed" says "not root" 1 with_device sh \
        -c "mount -t tmpfs none /run/rialto && chmod 777 /run/rialto &&
            exec setpriv --reuid 4711 --regid 4711 --clear-groups sh -c '/usr/bin/python3 -c \"
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
time.sleep(20)\" \"$(socket)\" &
                for i in \$(seq 300); do [ -S $(socket) ] && break; sleep 0.1; done
                $open/rialto pagsh --path $far -c true
                code=\$?; kill \$!; exit \$code'"
fi

check "root's session" says "of joe" 0 within 60 env SHELL=/bin/sh "$RIALTO" pagsh --path "$far" \
    -c "echo 'open sesame' | '$RIALTO' login joe --password-stdin --path '$far' &&
        cat '$far/joe/unread'"
check "outside root is nobody as before" says "Permission denied" 1 env LC_ALL=C cat \
    "$far/joe/unread"
check "nothing is left of it" over
check "nor mounted" [ "$(mounts_here)" = 1 ]
check "where no tree is: a clear word" says "no tree is mounted there" 3 "$RIALTO" pagsh --path / \
    -c true
# A mount that is killed leaves the caches of its sessions; its next life takes them away.
within 60 "$RIALTO" pagsh --path "$far" -c "touch '$open/held' && sleep 20" > /dev/null 2>&1 &
held=$!
for _ in $(seq 300); do [ -e "$open/held" ] && break; sleep 0.1; done
kill -9 "$(head -n 1 "$base"/other/mounts/*.pid)"
kill "$held"; wait "$held" 2> /dev/null
check "a killed mount leaves something" [ "$(sessions)" = 1 ]
check "it is taken away" within 60 "$RIALTO" umount --lazy --dir "$base/other" "$far"
check "and mounted again" within 60 "$RIALTO" mount --daemon \
    --dir "$base/other" "127.0.0.1:$port" "$far"
check "without what was left" [ "$(sessions)" = 0 ]
# The tree goes while a session writes: what it wrote is there.
within 60 "$RIALTO" pagsh --path "$far" -c \
    "echo 'open sesame' | '$RIALTO' login joe --password-stdin --path '$far' &&
        echo in time > '$far/joe/late' && touch '$open/wrote' && sleep 4" > /dev/null 2>&1 &
for _ in $(seq 300); do [ -e "$open/wrote" ] && break; sleep 0.1; done
check "the tree is unmounted under a session" within 60 "$RIALTO" umount --dir "$base/other" "$far"
check "what was written in it is there" [ "$(cat "$at/joe/late")" = "in time" ]
check "no tree, no session" says "no tree is mounted there" 3 "$RIALTO" pagsh --path "$far" -c true
finish
