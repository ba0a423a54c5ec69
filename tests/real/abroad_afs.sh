#!/bin/bash
# Rialto's mount shows a cell of OpenAFS's servers beside its own cell. All of it in a network of
# its own: Rialto's cell home.test at one address, OpenAFS's cell x.org at another, and a client of
# OpenAFS for the same cell.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/openafs.sh"
needs_root
PATH=$PATH:/usr/sbin
for tool in krb5kdc kdb5_util kadmin.local kinit; do
    command -v $tool > /dev/null ||
        { skip "$tool is missing (Debian: krb5-kdc, krb5-admin-server, krb5-user)"; finish; }
done
get_openafs || { skip "OpenAFS's packages cannot be downloaded"; finish; }
if [ -z "${PRIVATE_NET:-}" ]; then
    PRIVATE_NET=yes exec unshare --net --mount --propagation private "$0"
fi
drop_other_mounts
base=$WORK/abroad cell=$WORK/abroad/cell realm=$WORK/abroad/realm afs=$WORK/abroad/afs
here=192.0.2.1 there=192.0.2.2
afsd=() kdc=''
# A process that waits for such a client can only be killed after the client.
(sleep 400 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/theirs" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$afs" > /dev/null 2>&1
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/second" > /dev/null 2>&1
    stop_openafs_servers "$base/openafs"
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/native" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    [ -z "$kdc" ] || { kill "$kdc"; wait "$kdc"; } 2> /dev/null
}
trap cleanup EXIT
mkdir -p "$base"/{native,etc,openafs} "$realm/users" "$afs"
chmod 1777 "$realm/users"
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs

# A realm with users and the service of the foreign cell.
cat > "$realm/krb5.conf" << CONF
[libdefaults]
default_realm = X.ORG
dns_lookup_kdc = false
dns_lookup_realm = false
rdns = false
[realms]
X.ORG = {
kdc = $here:8888
}
[domain_realm]
x.org = X.ORG
CONF
cat > "$realm/kdc.conf" << CONF
[realms]
X.ORG = {
kdc_listen = $here:8888
kdc_tcp_listen = $here:8888
database_name = $realm/users.db
key_stash_file = $realm/stash
acl_file = $realm/acl
}
CONF
export KRB5_CONFIG=$realm/krb5.conf KRB5_KDC_PROFILE=$realm/kdc.conf
admin() { kadmin.local -r X.ORG -q "$1" > /dev/null; }
make_realm() {
    kdb5_util create -r X.ORG -s -P "master key" && admin "addprinc -pw opensesame joe" &&
        admin "addprinc -pw opensesame ann" &&
        admin "addprinc -randkey -e aes256-cts-hmac-sha1-96:normal afs/x.org" &&
        admin "ktadd -norandkey -k $base/afs.keytab afs/x.org"
}
check "a realm" make_realm
krb5kdc -n -r X.ORG -P "$realm/pid" > "$realm/log" 2>&1 &
kdc=$!

# The cell here, which makes a tree for the cell there.
configure_openafs home.test $here
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
check "a cell" rialto up --no-mount --cell home.test --listen $here:7620
cp "$base/afs.keytab" /etc/openafs/server/rxkad.keytab
kvno=$(klist -k "$base/afs.keytab" | sed -n 's/^ *\([0-9]*\) afs.*/\1/p' | head -n 1)
openafs asetkey add rxkad_krb5 "$kvno" 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG \
    > /dev/null
rialto down > /dev/null
cp /etc/openafs/server/KeyFileExt "$cell"
printf '\n[afs]\nlisten = "%s"\nkeys = "KeyFileExt"\n' $here >> "$cell/cell.toml"
check "it opens the ports of AFS" rialto up --no-mount
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/native"
check "a volume" openafs vos create $here a seed -localauth
check "with room" openafs vos setfields seed -maxquota 200000 -localauth
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/seed" seed
check "everyone writes" within 30 "$RIALTO" fs setacl "$base/native/seed" system:anyuser rlidwk
cp -r /usr/include/linux "$base/native/seed/tree" && ln -s tree/version.h "$base/native/seed/link"
ln "$base/native/seed/tree/version.h" "$base/native/seed/tree/again.h"
head -c 5000000 /dev/urandom > "$base/native/seed/bytes"
mkdir "$base/native/seed/many" &&
    seq 300 | (cd "$base/native/seed/many" && split --lines 1 --suffix-length 4 - file.)
cp -a "$base/native/seed" "$base/kept"
check "a dump of it" openafs vos dump seed -file "$base/dump" -localauth

check "OpenAFS's servers" start_openafs_servers "$base/openafs" x.org $there
vos() { openafs_there "$base/openafs" vos "$@"; }
pts() { openafs_there "$base/openafs" pts "$@"; }
check "the root of their cell" vos restore $there z root.cell -file "$base/dump"
check "their client" mount_openafs "$base/openafs/etc" "$base/afsd" "$base/theirs" root.cell

# The mount.
mkdir -p "$base/config"
printf '>x.org #\n%s #server.x.org\n' $there > "$base/config/CellServDB"
check "a mount of all cells" within 60 "$RIALTO" mount --dynroot --daemon --dir "$cell" \
    --cellservdb "$base/config/CellServDB" "unix:$cell/server.sock" "$afs"
check "the cell is listed" says x.org 0 within 30 ls "$afs"
check "a file of theirs" within 30 cmp "$base/kept/tree/version.h" "$afs/x.org/tree/version.h"
check "a link" within 30 cmp "$base/kept/link" "$afs/x.org/link"
same() { within 120 diff -r --no-dereference "$base/kept" "$afs/x.org"; }
check "the whole tree" same
theirs=$base/theirs ours=$afs/x.org
# A second mount: to their servers, another host.
mkdir -p "$base/second"
check "a second mount" within 60 "$RIALTO" mount --dynroot --daemon --dir "$cell" \
    --cellservdb "$base/config/CellServDB" "$here:7620" "$base/second"
second=$base/second/x.org

# What another client changes is seen at the next look, once the server has it: OpenAFS's client
# stores a file only after its close has returned.
reads() { # FILE TEXT
    local got; got=$(within 30 cat "$1") && [ "$got" = "$2" ] && return 0
    echo "$1 has '$got', not '$2'"; return 1
}
soon() { # COMMAND...: within some seconds
    local soon_n
    for soon_n in $(seq 50); do "$@" && return 0; sleep 0.1; done
    return 1
}
their_writes() {
    local n
    for n in $(seq 20); do
        echo "$n" > "$theirs/seen" && soon reads "$ours/seen" "$n" || return 1
    done
}
check "their writes are seen" their_writes
their_names() {
    local n
    for n in $(seq 10); do
        [ ! -e "$ours/new.$n" ] && echo "$n" > "$theirs/new.$n" &&
            soon reads "$ours/new.$n" "$n" &&
            mv "$theirs/new.$n" "$theirs/moved.$n" && [ ! -e "$ours/new.$n" ] &&
            reads "$ours/moved.$n" "$n" && rm "$theirs/moved.$n" &&
            [ ! -e "$ours/moved.$n" ] || { echo "round $n"; return 1; }
    done
}
check "their names are seen" their_names
check "their directory" mkdir "$theirs/dir"
check "is seen" test -d "$ours/dir"
check "with its mode" sh -c "chmod 700 '$theirs/dir' && ls -ld '$ours/dir'"

# And the other way, with a volume in which everyone writes.
our_writes() {
    local n
    for n in $(seq 20); do
        echo "$n" > "$ours/written" && reads "$theirs/written" "$n" || return 1
    done
}
check "our writes are seen" our_writes
our_names() {
    local n
    for n in $(seq 10); do
        [ ! -e "$theirs/our.$n" ] && echo "$n" > "$ours/our.$n" && reads "$theirs/our.$n" "$n" &&
            mv "$ours/our.$n" "$ours/gone.$n" && [ ! -e "$theirs/our.$n" ] &&
            reads "$theirs/gone.$n" "$n" && rm "$ours/gone.$n" &&
            [ ! -e "$theirs/gone.$n" ] || { echo "round $n"; return 1; }
    done
}
check "our names are seen" our_names
check "a tree is copied into it" within 120 cp -r "$base/kept/tree" "$ours/copied"
check "it is the same there" within 120 diff -r "$base/kept/tree" "$theirs/copied"
check "and here" within 120 diff -r "$base/kept/tree" "$ours/copied"
check "and goes" within 120 rm -r "$ours/copied"
check "for them too" test ! -e "$theirs/copied"
check "a large file" within 120 cp "$base/kept/bytes" "$ours/large"
check "is the same there" cmp "$base/kept/bytes" "$theirs/large"
check "it is cut" truncate -s 100000 "$ours/large"
cut() { head -c 100000 "$base/kept/bytes" | cmp - "$1/large"; }
check "for both" sh -c "$(declare -f cut); base=$base; cut '$theirs' && cut '$ours'"
has_lines() { [ "$(wc -l < "$1")" = "$2" ]; }
both_append() { # DIR: and another one
    local n
    : > "$ours/lines"
    for n in $(seq 20); do
        echo "ours $n" >> "$ours/lines" && has_lines "$1/lines" $((2 * n - 1)) &&
            echo "theirs $n" >> "$1/lines" && soon has_lines "$ours/lines" $((2 * n)) ||
            { echo "line $n"; return 1; }
    done
    cmp "$ours/lines" "$1/lines"
}
check "both append in turn" both_append "$theirs"
check "so do two mounts" both_append "$second"
check "a link to another directory is refused" says "Invalid cross-device link" 1 \
    ln "$ours/lines" "$ours/dir/lines"
check "a link beside it is made" ln "$ours/lines" "$ours/lines.too"
check "a pipe is not" refused mkfifo "$ours/pipe"
check "a directory with entries stays" says "not empty" 1 rmdir "$ours/tree"
open_and_removed() {
    exec 5< "$ours/lines" && rm "$ours/lines" "$ours/lines.too" && [ ! -e "$ours/lines" ] &&
        [ "$(wc -l <&5)" = 40 ] && exec 5<&-
}
check "a file that is open outlives its name" open_and_removed

# Users with tickets. Their cell knows joe, and a volume in which joe alone writes.
as() { local uid=$1; shift; KRB5CCNAME=FILE:$realm/users/$uid setpriv --reuid "$uid" \
    --regid "$uid" --clear-groups timeout 60 "$@"; }
# Users may not see where this program was built.
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto"
check "a user of theirs" pts createuser joe 4242
check "an administrator" pts createuser ann 4243
check "who is one" pts adduser ann system:administrators
check "a volume of theirs" vos create $there z home
printf 'opensesame\n' | as 4711 kinit joe > /dev/null
printf 'opensesame\n' | as 4712 kinit ann > /dev/null
check "a login with a ticket" as 4711 "$base/rialto" login --kerberos --path "$ours"
check "the token is shown" says joe@X.ORG 0 as 4711 "$base/rialto" tokens --path "$ours"
check "a user writes" as 4711 sh -c "echo joe > '$ours/of.joe'"
check "as the owner" says 4242 0 stat -c %u "$ours/of.joe"
check "another one is nobody" as 4712 sh -c "echo ann > '$ours/of.ann'"
check "the server says so" says 32766 0 stat -c %u "$ours/of.ann"
check "a logout" as 4711 "$base/rialto" logout --path "$ours"
check "and is nobody again" as 4711 sh -c "echo joe > '$ours/of.nobody'"
check "the server says so" says 32766 0 stat -c %u "$ours/of.nobody"

# An administrator of theirs makes a place for joe.
fs() { local uid=$1; shift; as "$uid" "$base/rialto" fs "$@"; }
check "the administrator logs in" as 4712 "$base/rialto" login --kerberos --path "$ours"
check "and joe" as 4711 "$base/rialto" login --kerberos --path "$ours"
check "a mount point is made" fs 4712 mkmount "$ours/home" home
check "theirs shows it" says "#home" 0 within 30 "$RIALTO" fs lsmount "$ours/home"
check "nobody may list it" says "Permission denied" 2 ls "$ours/home"
check "an access list is set" fs 4712 setacl "$ours/home" joe rlidwk system:anyuser l
check "and shown" says "joe rlidwk" 0 fs 4712 listacl "$ours/home"
check "as their server has it" says "system:administrators rlidwka" 0 fs 4712 listacl "$ours/home"
check "joe writes there" as 4711 sh -c "echo mine > '$ours/home/mine'"
check "joe reads it" says mine 0 as 4711 cat "$ours/home/mine"
check "others do not" says "Permission denied" 1 as 4713 cat "$ours/home/mine"
check "nor write" refused as 4713 sh -c "echo theirs > '$ours/home/theirs'"
check "a list is taken back" fs 4712 setacl "$ours/home" joe none
check "and holds at once" says "Permission denied" 1 as 4711 cat "$ours/home/mine"

rounds() {
    local n
    for n in $(seq 20); do
        echo "$n" > "$ours/turn" && reads "$second/turn" "$n" &&
            echo "$n back" > "$second/turn" && reads "$ours/turn" "$n back" || return 1
    done
}
check "two mounts see each other's writes" rounds
locked() { # a lock on one side keeps the other side out until it ends
    exec 6< "$ours/turn" && flock --exclusive 6 &&
        { ! flock --nonblock "$second/turn" true || return 1; } &&
        { ! flock --nonblock --shared "$second/turn" true || return 1; } &&
        { ! flock --nonblock "$ours/turn" true || return 1; } && exec 6<&- &&
        flock --wait 10 "$second/turn" true
}
check "a lock keeps the other one out" locked
shared() {
    exec 6< "$ours/turn" && flock --shared 6 && flock --nonblock --shared "$second/turn" true &&
        { ! flock --nonblock "$second/turn" true || return 1; } && exec 6<&-
}
check "readers share one" shared
count_up() { # by both at the same time
    local at=$1 n
    for n in $(seq 25); do
        flock "$at/number" sh -c "echo \$((\$(cat '$at/number') + 1)) > '$at/number'" || return 1
    done
}
echo 0 > "$ours/number"
count_both() {
    count_up "$ours" & count_up "$second" && wait $! && reads "$ours/number" 50 &&
        reads "$theirs/number" 50
}
check "both count under a lock" count_both

# Random reads, writes, maps and cuts, compared with a copy in memory.
seed=${SEED:-$RANDOM}
exercise() { within 120 "$TOOLS/exercise" "$@"; }
check "one mount, seed $seed" exercise random "$ours/one" --ops 10000 --seed "$seed" \
    --no-fallocate
check "two mounts with locks, seed $seed" exercise random "$ours/two" "$second/two" --ops 2000 \
    --turn 8 --seed "$seed" --no-fallocate
check "two mounts by closing, seed $seed" exercise random "$ours/two" "$second/two" --ops 500 \
    --seed "$seed" --handover close --no-fallocate
contend() {
    exercise contend "$ours/contended" --seconds 3 --seed 1 & exercise contend \
        "$second/contended" --seconds 3 --seed 2 && wait $!
}
check "two mounts contend for fcntl locks" contend
check "no room is reserved" refused fallocate --length 1000 "$ours/one"
emptied() { # a directory whose files were open a moment ago
    local n
    for n in $(seq 20); do
        mkdir "$ours/emptied" && echo x > "$ours/emptied/file" &&
            exec 7< "$ours/emptied/file" && rm "$ours/emptied/file" && exec 7<&- &&
            rmdir "$ours/emptied" || { ls -a "$ours/emptied"; return 1; }
    done
}
check "a directory is empty once its files are closed" emptied

# A volume with a replica, which shows what was released.
check "a volume" vos create $there z pub
check "its replica" vos addsite $there z pub
check "a mount point for it" fs 4712 mkmount "$ours/pub.rw" pub
check "and its replica" fs 4712 mkmount "$ours/pub" pub.readonly
check "everyone reads" fs 4712 setacl "$ours/pub.rw" system:anyuser rl
check "the administrator writes" as 4712 sh -c "echo one > '$ours/pub.rw/text'"
check "what is not released is not there" refused cat "$ours/pub/text"
check "it is released" vos release pub
check "and there" soon reads "$ours/pub/text" one
check "nobody writes to it" says "Read-only file system" 2 sh -c \
    "exec 2>&1; echo two > '$ours/pub/text'"
check "the administrator writes" as 4712 sh -c "echo two > '$ours/pub.rw/text'"
check "the replica stays" reads "$ours/pub/text" one
check "it is released" vos release pub
check "and there" soon reads "$ours/pub/text" two

# The programs for administrators.
port=$(sed -n 's/.*callbacks=Some(0.0.0.0:\([0-9]*\)).*/\1/p' "$cell"/logs/mount-*abroad-afs.log |
    tail -n 1)
check "cmdebug shows no locks" openafs cmdebug -servers $here -port "$port"
check "cmdebug shows the cell" says ">x.org" 0 openafs cmdebug -servers $here -port "$port" \
    -cellservdb
check "and who we are" says "Host interfaces" 0 openafs cmdebug -servers $here -port "$port" -addrs
check "rxdebug shows the version" says Rialto 0 openafs rxdebug $here "$port" -version

# A server that is gone ends no program for long, and what comes after it is right.
stop_servers() { while read -r pid; do kill -STOP "$pid"; done < "$base/openafs/pids"; }
start_servers() { while read -r pid; do kill -CONT "$pid"; done < "$base/openafs/pids"; }
stop_servers
check "a write to a silent server fails" refused within 60 sh -c "echo lost > '$ours/lost'"
check "what is cached is trusted no more" refused within 60 cat "$ours/written"
start_servers
back() { for _ in $(seq 30); do reads "$ours/seen" 20 && return 0; sleep 1; done; return 1; }
check "it is back" back
echo again > "$theirs/seen"
check "and its changes are seen" soon reads "$ours/seen" again
stop_servers
unmounted() { within 60 "$RIALTO" umount --dir "$cell" "$1"; }
check "a mount with silent servers ends" unmounted "$base/second"
start_servers
finish
