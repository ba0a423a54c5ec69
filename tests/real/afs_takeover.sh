#!/bin/bash
# A cell of OpenAFS comes to Rialto, and goes back: a server of Rialto joins, follows the databases,
# takes them over, serves OpenAFS's file server and clients from its own, and gives everything back.
# All of it in a network of its own: OpenAFS at one address, Rialto at another.
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
base=$WORK/takeover cell=$WORK/takeover/cell here=192.0.2.1 there=192.0.2.2
afsd=()
# A process that waits for such a client can only be killed after the client.
(sleep 200 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/client" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/native" > /dev/null 2>&1
    kill "${following:-}" 2> /dev/null
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    stop_openafs_servers "$base/openafs"
}
trap cleanup EXIT
mkdir -p "$base"/{native,etc,openafs}
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
# `openafs` asks Rialto's databases, `there` those of OpenAFS.
configure_openafs x.org $here
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
there() { openafs_there "$base/openafs" "$@"; }
eventually() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { "$@"; return 1; }
        sleep 0.3
    done
}
# All entries, and all users and groups, that the databases of a side have.
entries() { # entries openafs|there
    local localauth=()
    [ "$1" = there ] || localauth=(-localauth)
    "$1" vos listvldb -noresolve "${localauth[@]}" | sed '/^Total/d'
}
# All but a volume of Rialto's that the other cell never had.
entries_of_afs() { entries "$1" | awk 'BEGIN { RS = ""; ORS = "\n\n" } $1 != "root.rialto"'; }
people() {
    local localauth=() group
    [ "$1" = there ] || localauth=(-localauth)
    "$1" pts listentries -users -groups "${localauth[@]}" | awk '{ print $1, $2, $3 }' | sort
    for group in system:administrators staff joe:friends; do
        echo "$group:"
        "$1" pts membership $group "${localauth[@]}" | sed 1d | sort
    done
}
same() { # same FUNCTION: both sides tell the same
    "$1" openafs > "$base/$1.here" && "$1" there > "$base/$1.there" &&
        diff "$base/$1.here" "$base/$1.there"
}

# The cell that is there.
keytab=/etc/openafs/server/rxkad.keytab
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    $keytab | ktutil > /dev/null
openafs asetkey add rxkad_krb5 1 18 $keytab afs/x.org@X.ORG > /dev/null
check "OpenAFS's servers" start_openafs_servers "$base/openafs" x.org $there
cell_there() {
    there pts createuser joe -id 1001 && there pts createuser ann -id 1002 &&
        there pts createuser ben -id 70000 &&
        there pts creategroup staff -owner system:administrators -id -500 &&
        there pts creategroup joe:friends -owner joe && there pts adduser joe staff &&
        there pts adduser ann joe:friends && there pts adduser ben system:administrators &&
        there vos create $there z root.cell && there vos create $there z home &&
        there vos create $there z sw && there vos addsite $there z sw &&
        there vos release sw && there vos backup home
}
check "users and volumes there" cell_there

# Rialto joins, and has a copy of the databases.
check "it joins" rialto up --no-mount --join-afs x.org --afs-databases $there --keytab $keytab \
    --listen $here:7620
entered() { there vos listaddrs -noresolve | grep -q $here; }
check "it enters itself" eventually 15 entered
check "a volume there is found here" says "home" 0 rialto vos listvldb home
check "the server of AFS is listed" says "$there:7000" 0 rialto vos listaddrs
check "an entry that cannot be is named" says "root.cell" 0 rialto import-afs
check "and no take-over goes without it" says "1 volumes are left out" 1 \
    rialto import-afs --take-over
check "OpenAFS's vos asks the copy" says "RWrite: " 0 openafs vos examine home -localauth
check "which takes no change" refused openafs vos lock home -localauth
check "nor one of users" refused openafs pts createuser eve -localauth
check "udebug says so" says "I am not sync site" 0 openafs udebug $here 7003
check "the volume is not locked" refused sh -c \
    "'$RIALTO' vos listvldb home --dir '$cell' | grep -qi locked"

# It follows.
check "the volume in the way has another name" rialto vos rename root.cell root.rialto
"$RIALTO" import-afs --follow 1 --dir "$cell" > "$base/followed" 2>&1 &
following=$!
check "now the entry comes in" eventually 10 same entries_of_afs
there vos create $there z work > /dev/null && there vos rename home home.joe > /dev/null &&
    there vos remove $there z sw.readonly > /dev/null 2>&1
check "a new volume" eventually 10 rialto vos listvldb work
check "one has another name" eventually 10 rialto vos listvldb home.joe
there vos remove $there z work > /dev/null
check "one goes" eventually 10 refused rialto vos listvldb work
kill $following

# It takes over. OpenAFS's databases end; its file server gets the new ones.
check "it takes over" says "count from its server's next start on" 0 rialto import-afs --take-over
check "entries are those of before" same entries_of_afs
check "users are those of before" same people
entries there > "$base/entries.before"
stop_openafs_servers "$base/openafs"
check "its server starts again" sh -c \
    "'$RIALTO' down --dir '$cell' && '$RIALTO' up --no-mount --dir '$cell'"
check "it is the synchronization site" says "I am sync site" 0 openafs udebug $here 7003
check "OpenAFS's file server, with Rialto's databases" \
    start_openafs_servers "$base/openafs" x.org $there $here
check "vos examine shows what is there" says "On-line" 0 openafs vos examine home.joe -localauth
check "numbers go on" openafs vos create $there z new -localauth
check "a volume on Rialto's server" openafs vos create $here a ours -maxquota 200000 \
    -localauth
check "pts makes users" openafs pts createuser zoe -id 1003 -localauth
check "and members" openafs pts adduser zoe joe:friends -localauth
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" --volume ours \
    "unix:$cell/server.sock" "$base/native"
check "which lets everyone write" within 30 "$RIALTO" fs setacl "$base/native" system:anyuser rlidwk
cp -r /usr/include/linux "$base/native/tree"
check "its volume goes to OpenAFS's server" openafs vos move ours $here a $there z -localauth
check "a client of AFS" mount_openafs "$base/openafs/etc" "$base/afsd" "$base/client" ours
check "which reads there" within 60 diff -r /usr/include/linux "$base/client/tree"
check "and writes" within 20 sh -c "echo from there > '$base/client/file'"
check "the volume comes back" openafs vos move ours $there z $here a -localauth
check "the client goes on" eventually 20 grep -q "from there" "$base/client/file"
check "vos move to Rialto" openafs vos move home.joe $there z $here a -localauth
check "its place is known" says "$here" 0 openafs vos listvldb home.joe -noresolve -localauth
check "and back" openafs vos move home.joe $here a $there z -localauth

# It gives back. OpenAFS's databases are those of before.
for pid in "${afsd[@]}"; do kill -9 "$pid"; done
umount --lazy "$base/client"
check "the native mount ends" within 60 "$RIALTO" umount --dir "$cell" "$base/native"
stop_openafs_servers "$base/openafs"
check "OpenAFS's own databases" start_openafs_servers "$base/openafs" x.org $there
unchanged() { entries there | diff "$base/entries.before" -; }
check "they are those of before" unchanged
check "what would be given is told" says "zoe (1003)" 0 rialto export-afs --servers $there --dry-run
check "and nothing is given" refused there pts examine zoe
check "a cell of itself is refused" says "names this server itself" 1 \
    rialto export-afs --servers $here
check "a user goes" openafs pts delete ann -localauth
check "it gives back" rialto export-afs --servers $there --prune
check "a second time is nothing" says "0 changes" 0 rialto export-afs --servers $there --prune
check "it hands over" says "follows those databases" 0 \
    rialto export-afs --servers $there --prune --hand-over
check "which it does once" says "this cell follows databases of OpenAFS" 1 \
    rialto export-afs --servers $there
check "entries are the same" same entries
check "users are the same" same people
check "its server starts again" sh -c \
    "'$RIALTO' down --dir '$cell' && '$RIALTO' up --no-mount --dir '$cell'"
check "it takes no change" refused openafs pts createuser eve -localauth
check "vos there makes a volume" there vos create $there z later
check "which is found here" sh -c \
    "'$RIALTO' import-afs --dir '$cell' && '$RIALTO' vos listvldb later --dir '$cell'"
check "the server stops" rialto down --lazy
finish
