#!/bin/bash
# AFS's own clients and tools work on Rialto: OpenAFS's commands, and two machines with OpenAFS's
# client as a FUSE program beside a native mount. All of it in a network of its own, since the ports
# are AFS's.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/openafs.sh"
needs_root
command -v ktutil > /dev/null ||
    { fail "ktutil is there: 'scripts/setup.sh test' installs it (krb5-user)"; finish; }
get_openafs || { skip "OpenAFS's packages cannot be downloaded"; finish; }
if [ -z "${PRIVATE_NET:-}" ]; then
    PRIVATE_NET=yes exec unshare --net --mount --propagation private "$0"
fi
drop_other_mounts
base=$WORK/afs cell=$WORK/afs/cell address=192.0.2.1
afsd=()
# A process that waits for such a client can only be killed after the client.
(sleep 200 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/one" "$base/two" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/native" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
}
trap cleanup EXIT
mkdir -p "$base"/{native,one,two,etc}
ip link set lo up && ip address add "$address/24" dev lo || { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs x.org $address
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }

check "a cell" rialto up --no-mount --cell x.org --listen $address:7620
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    "$cell/afs.keytab" | ktutil > /dev/null
cp "$cell/afs.keytab" /etc/openafs/server/rxkad.keytab
rialto down > /dev/null
check "OpenAFS's tools have no server before" refused openafs vos listvldb -noauth
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $address >> "$cell/cell.toml"
check "it opens the ports of AFS" rialto up --no-mount
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/native"
check "its volume has access lists" rialto vos setfields root.cell -model acl
check "which let everyone write" within 30 "$RIALTO" fs setacl "$base/native" system:anyuser rlidwk

# Tools.
openafs asetkey add rxkad_krb5 1 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG > /dev/null
check "vos listvldb" says "server $address partition /vicepa RW Site" 0 openafs vos listvldb -noauth
check "vos listaddrs" says $address 0 openafs vos listaddrs -noauth -noresolve
check "vos examine of no volume" says 'no such entry' 1 openafs vos listvldb -name none -noauth
check "pts createuser by the key" says "User joe has id" 0 openafs pts createuser joe -localauth
check "is one here, too" says joe 0 rialto pts examine joe
check "pts examine" says "flags: S----, group quota: 20" 0 openafs pts examine joe -noauth
check "pts setfields" openafs pts setfields joe -access SOm-- -groupquota 3 -localauth
check "is seen here, too" says "flags: SOm--" 0 rialto pts examine joe
check "and there" says "flags: SOm--, group quota: 3" 0 openafs pts examine joe -localauth
check "nobody makes users" refused openafs pts createuser jim -noauth
check "rxdebug" says "AFS version: Rialto" 0 openafs rxdebug $address 7000 -version
check "rxdebug lists connections" says "security index 2, server conn" 0 \
    openafs rxdebug $address 7002 -allconnections
check "with their level" says "rxkad: level crypt" 0 openafs rxdebug $address 7002 -allconnections
check "to the end" says "Done." 0 openafs rxdebug $address 7002
check "and peers" says "Peer at host $address" 0 openafs rxdebug $address 7002 -peers -noconns
check "and counters" says "server connections, 0 client connections" 0 \
    openafs rxdebug $address 7002 -rxstats -noconns
for port in 7002 7003; do
    check "udebug $port" says "I am sync site forever (1 server)" 0 \
        openafs udebug $address $port -long
done
check "it has the database" says "Recovery state 1f" 0 openafs udebug $address 7003
version() { openafs udebug $address "$1" | grep 'Local db version'; }
check "which is one" test "$(version 7002)" = "$(version 7003)"
check "bos status" says "Instance rialto, currently running normally" 0 \
    openafs bos status $address -noauth
check "bos changes nothing" says "not authorized" 0 openafs bos shutdown $address -localauth

# Volumes.
check "vos partinfo" says "Free space on partition /vicepa" 0 openafs vos partinfo $address -noauth
check "vos listvol" says "K On-line" 0 openafs vos listvol $address -noauth
check "vos examine" says "RWrite: " 0 openafs vos examine root.cell -noauth
check "nobody makes volumes" refused openafs vos create $address a home.joe -noauth
check "vos create" says "created on partition" 0 openafs vos create $address a home.joe -localauth
check "it is one here, too" says "home.joe" 0 rialto vos examine home.joe
check "its quota is set" openafs vos setfields home.joe -maxquota 90000 -localauth
check "which is told" says "MaxQuota      90000 K" 0 openafs vos examine home.joe -noauth
check "it is not made twice" refused openafs vos create $address a home.joe -localauth
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/home" home.joe
check "and everyone writes" within 30 "$RIALTO" fs setacl "$base/native/home" system:anyuser rlidwk
cp -r /usr/include/linux "$base/native/home/tree" && ln -s tree/version.h "$base/native/home/link"
head -c 5000000 /dev/urandom > "$base/native/home/bytes"
check "vos backup" says "Created backup volume" 0 openafs vos backup home.joe -localauth
check "the backup is listed" says "home.joe.backup " 0 openafs vos listvol $address -noauth
check "vos addsite" openafs vos addsite $address a home.joe -localauth
check "vos release" says "Released volume home.joe" 0 openafs vos release home.joe -localauth
check "the site is released" sh -c \
    "! '$RIALTO' vos examine --dir '$cell' home.joe | grep -q 'Not released'"
check "the replica is mounted" within 30 "$RIALTO" fs mkmount "$base/native/ro" home.joe.readonly
check "a native client reads it" within 20 cmp "$base/native/ro/bytes" "$base/native/home/bytes"
check "a file is new" within 20 touch "$base/native/home/later"
check "it is not released" refused within 20 stat "$base/native/ro/later"
check "and does not write to it" refused within 20 touch "$base/native/ro/file"
check "a second release" says "Released volume home.joe" 0 openafs vos release home.joe -localauth
check "which is read" within 20 stat "$base/native/ro/later"
check "the replica is dismounted" within 30 "$RIALTO" fs rmmount "$base/native/ro"
check "and removed" says "deleted" 0 openafs vos remove -id home.joe.readonly -localauth
check "vos lock" openafs vos lock home.joe -localauth
check "which others respect" refused rialto vos backup home.joe
check "vos unlock" openafs vos unlock home.joe -localauth
check "vos dump" openafs vos dump home.joe -file "$base/dump" -localauth
check "vos size tells its size" says "dump_size: $(stat -c %s "$base/dump")" 0 \
    openafs vos size home.joe -dump -localauth
# OpenAFS reads it: its files, one by one.
mkdir -p "$base/restored"
check "restorevol reads the dump" openafs sh -c \
    "cd '$base/restored' && restorevol -file '$base/dump' -dir '$base/restored' -umask 022"
restored() {
    local at
    at=$(dirname "$(find "$base/restored" -name bytes -type f | head -n 1)")
    cmp "$at/bytes" "$base/native/home/bytes" && diff -r /usr/include/linux "$at/tree" &&
        [ "$(readlink "$at/link")" = tree/version.h ]
}
check "it is the same tree" restored
check "a dump of what changed since then is small" openafs vos dump home.joe -file "$base/changed" \
    -time "$(date -d '+1 day' '+%m/%d/%Y')" -localauth
check "indeed" sh -c "[ \$(stat -c %s '$base/changed') -lt 300000 ]"
check "the dumps left no snapshot" refused \
    sh -c "'$RIALTO' vos listvol --dir '$cell' | grep -q afs-dump"
check "it is dismounted" within 30 "$RIALTO" fs rmmount "$base/native/home"
check "vos rename" openafs vos rename home.joe home.jim -localauth
check "which is seen here" says "home.jim" 0 rialto vos examine home.jim
check "vos remove" says "deleted" 0 openafs vos remove $address a home.jim -localauth
check "it is gone" refused rialto vos examine home.jim
check "vos status" says "No active transactions" 0 openafs vos status $address -localauth

# Clients. Their FUSE program lets the kernel keep names and sizes for a second, whatever callbacks
# say; and it stores a file when the kernel releases it, which is after the close.
next_look() { sleep 1.1; }
client() { # client NAME
    mount_openafs /etc/openafs "$base/$1.client" "$base/$1" root.cell
}
mkdir "$base/native/there" && echo first > "$base/native/there/file"
check "a client" client one
check "another one" client two
check "a file of the native mount is read" says first 0 within 20 cat "$base/one/there/file"
check "and written" within 20 sh -c "echo second > '$base/one/there/file'"
next_look
check "which the mount sees" says second 0 within 20 cat "$base/native/there/file"
next_look
check "and the other client" says second 0 within 20 cat "$base/two/there/file"
# Each side changes what the others have cached.
turns() {
    local turn
    for turn in 1 2 3 4 5; do
        echo "native $turn" > "$base/native/there/file" || return 1
        next_look
        [ "$(within 20 cat "$base/one/there/file")" = "native $turn" ] || return 2
        [ "$(within 20 cat "$base/two/there/file")" = "native $turn" ] || return 3
        within 20 sh -c "echo 'one $turn' > '$base/one/there/file'" || return 4
        next_look
        [ "$(cat "$base/native/there/file")" = "one $turn" ] || return 5
        [ "$(within 20 cat "$base/two/there/file")" = "one $turn" ] || return 6
    done
}
check "each change is seen by the others at their next look" turns
names() {
    local turn
    for turn in 1 2 3; do
        within 20 mkdir "$base/one/there/dir$turn" || return 1
        [ -d "$base/native/there/dir$turn" ] || return 2
        rmdir "$base/native/there/dir$turn" || return 3
        next_look
        ! within 20 stat "$base/one/there/dir$turn" 2> /dev/null || return 4
    done
}
check "also of names" names
tree() {
    within 60 cp -r /usr/include/linux "$base/one/tree" || return 1
    next_look
    diff -r /usr/include/linux "$base/native/tree" || return 2
    within 60 diff -r /usr/include/linux "$base/two/tree"
}
check "a tree of files is the same everywhere" tree
check "a client unmounts" within 20 umount "$base/two"
check "the server stops" rialto down --lazy
finish
