#!/bin/bash
# A server of Rialto in a cell that has OpenAFS's databases: it enters itself there, has the cell's
# users and groups with their numbers, and follows their changes; that cell's tools make volumes on
# it, and its clients find them. All of it in a network of its own: OpenAFS at one address, Rialto
# at another.
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
base=$WORK/afs_joins cell=$WORK/afs_joins/cell here=192.0.2.1 there=192.0.2.2
afsd=()
# A process that waits for such a client can only be killed after the client.
(sleep 150 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/client" 2> /dev/null
    kill "${following:-}" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/native" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    stop_openafs_servers "$base/openafs"
}
trap cleanup EXIT
mkdir -p "$base"/{native,etc,openafs}
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs x.org $there
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
vos() { openafs_there "$base/openafs" vos "$@"; }
eventually() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { "$@"; return 1; }
        sleep 0.3
    done
}
pts() { openafs_there "$base/openafs" pts "$@"; }

# The cell that is there.
keytab=/etc/openafs/server/rxkad.keytab
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    $keytab | ktutil > /dev/null
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nother\nwkt %s\nq\n' \
    "$base/other.keytab" | ktutil > /dev/null
openafs asetkey add rxkad_krb5 1 18 $keytab afs/x.org@X.ORG > /dev/null
check "OpenAFS's servers" start_openafs_servers "$base/openafs" x.org $there
people() {
    local n
    for n in joe:1001 ann:1002 ben:1003 kim:70000; do
        pts createuser "${n%:*}" -id "${n#*:}" || return 1
    done
    pts creategroup staff -owner system:administrators -id -500 &&
        pts creategroup joe:friends -owner joe && pts creategroup joe:crew -owner joe:friends &&
        pts adduser joe staff && pts adduser ann joe:friends && pts adduser kim joe:friends &&
        pts adduser ben system:administrators && pts setfields ann -groupquota 3 -access SOM-- &&
        pts createuser 10.1.0.0 -id 1010
}
check "users and groups there" people
check "a volume there" vos create $there z root.cell

# Rialto joins.
join() { # KEYTAB
    rialto up --no-mount --join-afs x.org --afs-databases $there --keytab "$1" --listen $here:7620
}
check "a keytab that is none is refused" says "reading the keys of AFS in /dev/null" 1 \
    join /dev/null
check "nothing was made" test ! -e "$cell/cell.toml"
check "without servers it is wrong usage" refused within 20 "$RIALTO" up --join-afs x.org \
    --keytab $keytab --dir "$cell"
check "a key that they do not have is refused" says "refuses ListEntries" 1 \
    join "$base/other.keytab"
check "nothing was made" test ! -e "$cell/cell.toml"
check "it joins" join $keytab
check "once more is nothing new" join $keytab
entered() { vos listaddrs -noresolve | grep -q $here; }
check "it enters itself" eventually 10 entered
check "users have the numbers from there" says "id: 1001" 0 rialto pts examine joe
check "and groups" says "id: -500" 0 rialto pts examine staff
check "and their quotas and flags" says "SOM--" 0 rialto pts examine ann
check "and their owners" says "owner: joe:friends" 0 rialto pts examine joe:crew
check "and members" says "kim" 0 rialto pts membership joe:friends
check "administrators are administrators" says "ben" 0 rialto pts membership \
    system:administrators
check "hosts are named and left out" says "10.1.0.0 (1010) is left out" 0 rialto import-afs
check "a repeated import has nothing to do" says "0 changes made" 0 rialto import-afs

# It follows.
pts createuser new -id 1004 > /dev/null && pts removeuser kim joe:friends > /dev/null &&
    pts rename ann anna > /dev/null && pts delete ben > /dev/null
rialto pts createuser own -id 5000 > /dev/null
check "what would be made is told" says "rename ann to anna" 0 rialto import-afs --dry-run
check "and not made" says "id: 1002" 0 rialto pts examine ann
"$RIALTO" import-afs --follow 1 --dir "$cell" > "$base/followed" 2>&1 &
following=$!
check "one is renamed" eventually 10 rialto pts examine anna
check "one is new" eventually 10 rialto pts examine new
check "one is no member any more" eventually 10 refused sh -c \
    "'$RIALTO' pts membership joe:friends --dir '$cell' | grep -q kim"
pts delete new > /dev/null
check "one that goes there goes here" eventually 10 refused rialto pts examine new
check "one that is here alone stays" rialto pts examine own
kill $following

# That cell's tools make a volume here, and its clients find it.
check "vos create" vos create $here a home -maxquota 200000
check "vos listvol" says "home " 0 vos listvol $here
check "vos status" says "No active transactions" 0 vos status $here
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/native"
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/home" home
check "and everyone writes" within 30 "$RIALTO" fs setacl "$base/native/home" \
    system:anyuser rlidwk joe:friends rl
check "a client of AFS" mount_openafs "$base/openafs/etc" "$base/afsd" "$base/client" home
cp -r /usr/include/linux "$base/native/home/tree"
check "it has the tree" within 60 diff -r /usr/include/linux "$base/client/tree"
check "and writes" within 20 sh -c "echo from there > '$base/client/file'"
check "which is seen here" eventually 10 grep -q "from there" "$base/native/home/file"
check "vos move to their server" vos move home $here a $there z
check "the client goes on" within 60 diff -r /usr/include/linux "$base/client/tree"
check "and back" vos move home $there z $here a
check "the access list names the same group" says "joe:friends rl" 0 \
    within 30 "$RIALTO" fs listacl "$base/native/home"
check "the server stops" rialto down --lazy
finish
