#!/bin/bash
# How a command finds its cell where nothing names it on the command line: /etc/rialto/cell, DNS, a
# mounted tree; servers that are silent; and the renewal of a login without a mount. In a network
# and a mount name space of its own.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ -z "${OWN_NETWORK:-}" ]; then
    OWN_NETWORK=yes exec unshare --net --mount --propagation private "$0"
fi
ip link set lo up || { skip "no network name space"; finish; }
drop_other_mounts
base=$WORK/finding cell=$WORK/finding/cell address=127.0.0.1:7620
started=()
cleanup() {
    [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$base/client" "$base/tree" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
}
trap cleanup EXIT
mkdir -p "$base/etc" "$base/tree"
chmod 755 "$base"
mount -t tmpfs -o mode=1777 tmpfs /tmp
cp /etc/{passwd,group,nsswitch.conf} "$base/etc/" 2> /dev/null
mkdir -p "$base/etc/rialto"
mount --bind "$base/etc" /etc
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto"
# A user who has nothing of the cell.
as_joe() { within 60 setpriv --reuid 4711 --regid 4711 --clear-groups env -i "PATH=$PATH" \
    "HOME=$base/home" "RIALTO_TOKENS=$base/tokens" ${EXTRA:-} "$base/rialto" "$@"; }
install -d -o 4711 -g 4711 -m 700 "$base/home" "$base/tokens"
cd / || exit 1
check "a cell" within 90 "$RIALTO" up --no-mount --dir "$cell" --cell found.test \
    --listen "$address"
within 30 "$RIALTO" pts createuser joe -uid 4711 --dir "$cell" > /dev/null
printf 'open sesame\n' | within 30 "$RIALTO" passwd joe --new-only --password-stdin --dir "$cell" \
    > /dev/null
asks() { as_joe pts examine joe; }
check "nothing names a cell" says "/etc/rialto/cell names none" 3 asks

# /etc/rialto/cell, with its servers in cells.toml.
echo found.test > /etc/rialto/cell
check "a cell that nothing lists" says "nor DNS has it" 3 asks
"$RIALTO" fs newcell found.test "$address"
check "/etc/rialto/cell names the cell, cells.toml its server" says "Name: joe" 0 asks
check "-verbose shows the way" says "found by /etc/rialto/cell" 0 as_joe vos listaddrs -verbose
printf '\n\n' > /etc/rialto/cell
check "an empty one names none" says "/etc/rialto/cell names none" 3 asks
printf '  found.test  \n' > /etc/rialto/cell
check "spaces do not count" says "Name: joe" 0 asks

# DNS.
rm /etc/rialto/cells.toml
rm -rf "$base/home/.local"
echo 'nameserver 127.0.0.53' > /etc/resolv.conf
python3 "$(dirname "$0")/../lib/name_server.py" 127.0.0.53 53 found.test ${address/:/ } \
    > "$base/names" &
started+=($!)
for _ in $(seq 100); do [ -s "$base/names" ] && break; sleep 0.05; done
check "DNS has the cell's server" says "Name: joe" 0 asks
check "for a cell that is named too" says "Name: joe" 0 env EXTRA=RIALTO_CELL=found.test bash -c \
    "$(declare -f within as_joe); base=$base; as_joe pts examine joe"
check "not for others" says "nor DNS has it" 3 as_joe pts examine joe --cell lost.test

# Servers that accept connections and say nothing: together they take the time of one.
cat > "$base/silent.py" << 'PY'
import signal
import socket
silent = [socket.create_server((f"127.0.1.{number}", 7620), backlog=64) for number in range(1, 9)]
print("ready", flush=True)
signal.pause()
PY
python3 "$base/silent.py" > "$base/silent" &
started+=($!)
for _ in $(seq 100); do [ -s "$base/silent" ] && break; sleep 0.05; done
silent=(127.0.1.{1..8}:7620)
"$RIALTO" fs newcell found.test "${silent[@]}" "$address"
check "a server behind eight silent ones is found" says "Name: joe" 0 timeout 12 setpriv \
    --reuid 4711 --regid 4711 --clear-groups env -i "HOME=$base/home" "$base/rialto" pts examine \
    joe
"$RIALTO" fs newcell found.test "${silent[@]}"
check "eight silent ones take the time of one" says "no server answers" 3 timeout 12 setpriv \
    --reuid 4711 --regid 4711 --clear-groups env -i "HOME=$base/home" "$base/rialto" pts examine \
    joe
kill "${started[@]}"; started=()

# A mounted tree: a cell that this user knows by nothing else, and its authority.
rm -f /etc/rialto/cell* /etc/resolv.conf
rm -rf "$base/home/.local"
check "a mount of root's" within 60 "$RIALTO" mount --daemon --dir "$base/client" "$address" \
    "$base/tree"
cd "$base/tree" || exit 1
check "the directory's tree names the cell" says "Name: joe" 0 asks
check "the mount vouches for the server, not the first sight of it" [ -z \
    "$(find "$base/home" -name known_cells)" ]
printf 'open sesame\n' | within 30 setpriv --reuid 4711 --regid 4711 --clear-groups \
    "$base/rialto" login joe --password-stdin --path "$base/tree" > /dev/null
check "its login counts" says "group joe:here" 0 as_joe pts creategroup joe:here
check "what the mount tells" says '"authorities":["sha256:' 0 getfattr -n rialto.connection \
    --only-values "$base/tree"
cd / || exit 1

# The renewal of a stored login.
if command -v faketime > /dev/null; then
    printf 'open sesame\n' | as_joe login joe --password-stdin --via "$address" > /dev/null
    token() { cksum "$base"/tokens/found.test*; }
    first=$(token)
    as_joe pts examine joe --cell found.test > /dev/null
    check "a new login is not renewed" [ "$(token)" = "$first" ]
    check "where a quarter is left a command works" says "Name: joe" 0 within 60 setpriv \
        --reuid 4711 --regid 4711 --clear-groups env -i "PATH=$PATH" "HOME=$base/home" \
        "RIALTO_TOKENS=$base/tokens" faketime '+8 hours' "$base/rialto" pts examine joe \
        --cell found.test
    check "and renews the login" [ "$(token)" != "$first" ]
    check "which is as good as before" says "group joe:later" 0 as_joe pts creategroup joe:later \
        --cell found.test
else
    skip "faketime is missing, so no login gets old"
fi
finish
