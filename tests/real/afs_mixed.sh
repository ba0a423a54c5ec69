#!/bin/bash
# One cell with a server of Rialto, which has its database, and OpenAFS's file server: a native
# mount and OpenAFS's client use volumes of both, and a volume moves between them while they do.
# All of it in a network of its own, Rialto at one address and OpenAFS at another.
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
base=$WORK/mixed cell=$WORK/mixed/cell realm=$WORK/mixed/realm
native=$WORK/mixed/native theirs=$WORK/mixed/theirs
here=192.0.2.1 there=192.0.2.2
afsd=() kdc=''
# A process that waits for such a client can only be killed after the client.
(sleep 900 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    touch "$base/enough"
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$theirs" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$native" > /dev/null 2>&1
    stop_openafs_servers "$base/openafs"
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    [ -z "$kdc" ] || { kill "$kdc"; wait "$kdc"; } 2> /dev/null
}
trap cleanup EXIT
mkdir -p "$base"/{etc,openafs} "$native" "$realm/users"
chmod 1777 "$realm/users"
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
vos() { openafs_there "$base/openafs" vos "$@"; }
soon() { # COMMAND...: within some seconds
    local soon_n
    for soon_n in $(seq 50); do "$@" && return 0; sleep 0.1; done
    return 1
}
reads() { # FILE TEXT
    local got; got=$(within 30 cat "$1") && [ "$got" = "$2" ] && return 0
    echo "$1 has '$got', not '$2'"; return 1
}

# A realm with users and the service of the cell.
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

# The cell: its database is Rialto's, and OpenAFS's file server enters itself there.
configure_openafs x.org $here
check "a cell" rialto up --no-mount --cell x.org --listen $here:7620
cp "$base/afs.keytab" /etc/openafs/server/rxkad.keytab
kvno=$(klist -k "$base/afs.keytab" | sed -n 's/^ *\([0-9]*\) afs.*/\1/p' | head -n 1)
openafs asetkey add rxkad_krb5 "$kvno" 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG \
    > /dev/null
rialto down > /dev/null
cp "$base/afs.keytab" "$cell"
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n[kerberos]\nkeytab = "afs.keytab"\n' $here \
    >> "$cell/cell.toml"
check "it opens the ports of AFS" rialto up --no-mount
check "OpenAFS's file server" start_openafs_servers "$base/openafs" x.org $there $here
check "is a server of the cell" says $there 0 rialto vos listaddrs
check "a user" rialto pts createuser joe -id 4242
check "an administrator" rialto pts createuser ann -id 4243
check "who is one" rialto pts adduser ann system:administrators
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$native"
check "a volume there" vos create $there z home -maxquota 200000
check "it is mounted" within 30 "$RIALTO" fs mkmount "$native/home" home

# Users with tickets.
as() { local uid=$1; shift; KRB5CCNAME=FILE:$realm/users/$uid setpriv --reuid "$uid" \
    --regid "$uid" --clear-groups timeout 60 "$@"; }
# Users may not see where this program was built.
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto"
home=$native/home
check "a stranger lists nothing there" says "Permission denied" 2 within 30 ls "$home"
printf 'opensesame\n' | as 4711 kinit joe > /dev/null
printf 'opensesame\n' | as 4712 kinit ann > /dev/null
check "joe logs in" says "at servers of AFS too" 0 \
    as 4711 "$base/rialto" login --kerberos --path "$native"
check "and the administrator" as 4712 "$base/rialto" login --kerberos --path "$native"
check "the tokens say so" says "at servers of AFS too" 0 \
    as 4712 "$base/rialto" tokens --path "$native"
check "everyone reads" as 4712 "$base/rialto" fs setacl "$home" system:anyuser rl
check "joe may write" as 4712 "$base/rialto" fs setacl "$home" joe rlidwk
check "the list has the names of the cell" says "joe rlidwk" 0 \
    as 4711 "$base/rialto" fs listacl "$home"
check "joe writes there" as 4711 sh -c "echo mine > '$home/mine'"
check "as the owner" says 4242 0 stat -c %u "$home/mine"
check "a stranger reads it" reads "$home/mine" mine
check "and does not write" refused sh -c "echo theirs > '$home/theirs'"
check "a logout" as 4711 "$base/rialto" logout --path "$native"
check "joe is a stranger" refused as 4711 sh -c "echo lost > '$home/lost'"
check "everyone writes" as 4712 "$base/rialto" fs setacl "$home" system:anyuser rlidwk
check "the servers answer" says "All servers are running" 0 \
    within 60 "$RIALTO" fs checkservers -path "$native"

# Reading and writing beside OpenAFS's client.
check "OpenAFS's client" mount_openafs "$base/openafs/etc" "$base/afsd" "$theirs" home
check "a tree is copied there" within 120 cp -r /usr/include/linux "$home/tree"
check "it is the same" within 120 diff -r --no-dereference /usr/include/linux "$home/tree"
check "and for them" within 120 diff -r --no-dereference /usr/include/linux "$theirs/tree"
their_writes() {
    local n
    for n in $(seq 20); do
        echo "$n" > "$theirs/seen" && soon reads "$home/seen" "$n" || return 1
    done
}
check "their writes are seen" their_writes
our_writes() {
    local n
    for n in $(seq 20); do
        echo "$n" > "$home/written" && soon reads "$theirs/written" "$n" || return 1
    done
}
check "our writes are seen" our_writes
seed=${SEED:-$RANDOM}
check "random work, seed $seed" within 120 "$TOOLS/exercise" random "$home/one" --ops 5000 \
    --seed "$seed" --no-fallocate

# The volume moves between the servers while programs at both kinds of client read and write:
# nothing fails, and both see the same in the end.
many=300
[ "$QUICK" = yes ] || many=10000
mkdir "$home/many" && seq $many | (cd "$home/many" && split --lines 1 --suffix-length 4 - file.)
cp -a "$home/tree" "$base/tree" && cp -a "$home/many" "$base/many"
reader() { # NAME DIR: compares trees until it is enough
    while [ ! -e "$base/enough" ]; do
        if diff -r --no-dereference "$base/tree" "$2/tree" > "$base/$1.diff" 2>&1 &&
            diff -r "$base/many" "$2/many" > "$base/$1.diff" 2>&1; then
            echo read
        else
            head -n 5 "$base/$1.diff"
        fi
    done > "$base/$1.reads" 2>&1
}
writer() { # NAME DIR: appends lines, makes and removes directories, replaces a file
    local n=0
    while [ ! -e "$base/enough" ]; do
        n=$((n + 1))
        echo "line $n" >> "$2/lines.$1" || echo "write $n"
        mkdir "$2/dir.$1.$n" && rmdir "$2/dir.$1.$n" || echo "dir $n"
        echo "$n" > "$2/new.$1" && mv "$2/new.$1" "$2/last.$1" || echo "file $n"
        [ "$(cat "$2/last.$1")" = "$n" ] || echo "last $n"
        echo $n > "$base/$1.written"
    done > "$base/$1.writes" 2>&1
}
workers=()
reader native "$home" & workers+=($!)
writer native "$home" & workers+=($!)
reader theirs "$theirs" & workers+=($!)
writer theirs "$theirs" & workers+=($!)
# A file that stays open and locked, and is written now and then.
exec 5>> "$home/held" && flock --exclusive 5
sleep 2
for round in 1 2; do
    check "it moves to Rialto while people work ($round)" vos move home $there z $here a
    check "its entry says so" says "server $here partition /vicepa RW Site" 0 vos listvldb home
    check "the open file is written" sh -c "echo here $round >&5"
    sleep 3
    check "and back to OpenAFS ($round)" vos move home $here a $there z
    check "its entry says so" says "server $there partition /vicepz RW Site" 0 vos listvldb home
    check "the open file is written" sh -c "echo there $round >&5"
    sleep 3
done
exec 5>&-
touch "$base/enough"
for worker in "${workers[@]}"; do
    check "a worker ends" within 100 tail --pid="$worker" -f /dev/null
done
lines() { seq -f 'line %g' "$(cat "$base/$1.written")" | diff - "$2/lines.$1"; }
for client in native theirs; do
    check "no read failed ($client)" \
        sh -c "! grep -v '^read\$' '$base/$client.reads' && grep -q read '$base/$client.reads'"
    check "no write failed ($client)" sh -c "! grep . '$base/$client.writes'"
    check "each line is there once ($client)" soon lines $client "$home"
    check "for both" soon lines $client "$theirs"
done
held() { printf 'here 1\nthere 1\nhere 2\nthere 2\n' | diff - "$1/held"; }
check "the open file has all" held "$home"
check "for both" soon held "$theirs"
check "the trees are the same" within 120 diff -r --no-dereference "$home" "$theirs"

# A file from before lists decided has a uniquifier that AFS does not know: an open one is lost when
# the volume goes there, and its name leads to it as before.
older=$native/older
check "a volume with mode bits" rialto vos create older
check "it is mounted" within 30 "$RIALTO" fs mkmount "$older" older
check "with a file" sh -c "echo before > '$older/file'"
check "lists decide from now on" rialto vos setfields older -model acl
check "everyone writes" within 30 "$RIALTO" fs setacl "$older" system:anyuser rlidwk
exec 6>> "$older/file" 7>> "$older/newer"
check "it moves to OpenAFS" vos move older $here a $there z
check "the open file is lost" says "Stale file handle" 1 bash -c "echo lost >&6"
check "a newer one is not" bash -c "echo kept >&7"
exec 6>&- 7>&-
check "its name leads to it" reads "$older/file" before
check "and it is written" sh -c "echo after >> '$older/file'"
check "so is the newer one" soon reads "$older/newer" kept
check "it moves back" vos move older $there z $here a
check "with all" reads "$older/file" "before
after"
finish
