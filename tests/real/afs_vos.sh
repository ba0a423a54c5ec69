#!/bin/bash
# Rialto's own vos with a server of AFS in the cell: OpenAFS's file and volume server at one
# address, which enters itself in the database of Rialto's cell at another, with one key. All of it
# in a network of its own.
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
base=$WORK/afs_vos cell=$WORK/afs_vos/cell here=192.0.2.1 there=192.0.2.2
afsd=()
# A process that waits for such a client can only be killed after the client.
(sleep 300 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    touch "$base/enough"
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base"/client.* 2> /dev/null
    stop_openafs_servers "$base/openafs"
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/native" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
}
trap cleanup EXIT
mkdir -p "$base"/{native,etc,openafs}
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs x.org $here
rialto() { within 100 "$RIALTO" "$@" --dir "$cell"; }
vos() { rialto vos "$@"; }

check "a cell" rialto up --no-mount --cell x.org --listen $here:7620
keytab() { # FILE PASSWORD
    printf 'addent -password -p afs/x.org@X.ORG -k 1 -e %s\n%s\nwkt %s\nq\n' \
        aes256-cts-hmac-sha1-96 "$2" "$1" | ktutil > /dev/null
}
keytab "$cell/afs.keytab" secret
keytab "$base/other.keytab" other
cp "$cell/afs.keytab" /etc/openafs/server/rxkad.keytab
openafs asetkey add rxkad_krb5 1 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG > /dev/null
rialto down > /dev/null
cp "$cell/cell.toml" "$base/closed.toml"
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $here >> "$cell/cell.toml"
check "it opens the ports of AFS" rialto up --no-mount
check "OpenAFS's file server enters itself" \
    start_openafs_servers "$base/openafs" x.org $there $here || finish
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/native"

# Looking.
check "it is a server of the cell" says "$there" 0 vos listaddrs
check "vos partinfo" says "Free space on partition /vicepz" 0 vos partinfo $there
check "vos listpart" says "/vicepz" 0 vos listpart $there
check "vos listvol of an empty server" says "volumes onLine 0" 0 vos listvol $there z
check "vos status" says "No active transactions" 0 vos status $there
check "a server that is not named gets no volume" says "of $(hostname)" 0 vos create anywhere
vos remove anywhere > /dev/null

# One volume of a server of AFS.
site() { # NAME SERVER PARTITION: the database has it there alone
    vos listvldb "$1" | grep -F "RW Site" > "$base/site" && [ "$(wc -l < "$base/site")" = 1 ] &&
        grep -F "partition $3 RW Site" "$base/site" | grep -qF "$2" ||
        { vos listvldb "$1"; return 1; }
}
me=$(hostname)
check "vos create there" vos create $there z one -maxquota 30M
check "the database has it" site one $there /vicepz
check "vos examine" says "MaxQuota      30720 K" 0 vos examine one
check "vos examine of its server" says "$there /vicepz" 0 vos examine one
check "vos listvol" says "one " 0 vos listvol $there
check "vos setfields" vos setfields one -maxquota 40M
check "the quota is another" says "MaxQuota      40960 K" 0 vos examine one
check "vos backup" vos backup one
check "vos examine of the backup" says "one.backup" 0 vos examine one.backup
check "vos backup again" vos backup one
check "vos rename" vos rename one two
check "the server has the new name" says "two " 0 vos listvol $there
check "vos offline" vos offline two
check "it is" says "Off-line" 0 vos examine two
check "vos online" vos online two
check "it is" says "On-line" 0 vos examine two
check "vos create of a name that exists" refused vos create $there z two
check "vos remove" vos remove two
check "the database has it no more" refused vos listvldb two
check "nor has the server" says "volumes onLine 0" 0 vos listvol $there z

# A volume with a tree, which goes there and back.
check "a volume" vos create $me vicep home -maxquota 300M -model acl -acl system:anyuser all
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/home" home || finish
cp -r /usr/include/linux "$base/native/home/tree" && ln -s tree/version.h "$base/native/home/link"
ln "$base/native/home/tree/version.h" "$base/native/home/tree/again.h"
head -c 3000000 /dev/urandom > "$base/native/home/bytes"
cp -a "$base/native/home" "$base/kept"
clients=0 shown=''
client() { # VOLUME: $shown is a mount of it, by a client of AFS; the one before ends
    local pid
    for pid in "${afsd[@]}"; do kill -9 "$pid"; done
    [ -z "$shown" ] || umount --lazy "$shown" 2> /dev/null
    afsd=() clients=$((clients + 1))
    shown=$base/client.$clients
    mount_openafs "$base/openafs/etc" "$base/afsd.$clients" "$shown" "$1"
    mountpoint -q "$shown"
}
same() { diff -r --no-dereference "$base/kept" "$1"; }
check "vos move --dry-run" says "send the clone" 0 vos move home -toserver $there --dry-run
check "moves nothing" site home "$me" /vicep
check "vos move there" says "moved to" 0 vos move home -toserver $there -verbose
check "the database says so" site home $there /vicepz
check "it is there" says "home " 0 vos listvol $there
check "it is not here" refused sh -c \
    "'$RIALTO' vos listvol $me --dir '$cell' | grep -q '^home '"
check "no clone is left" refused sh -c \
    "'$RIALTO' vos listvol --dir '$cell' | grep moving"
check "a client of AFS" client home
check "it is the same tree" same "$shown"
check "vos move of what is there" says "it is there" 1 vos move home -toserver $there
check "vos move back" vos move home -toserver $me -topartition vicep
check "the database says so" site home "$me" /vicep
check "it is not there" says "volumes onLine 0" 0 vos listvol $there z
check "the client goes on" same "$shown"
check "it is the same tree natively" same "$base/native/home"

# Copies.
check "vos copy there" vos copy home -toname copied -toserver $there
check "the database has it" site copied $there /vicepz
check "a client of AFS" client copied
check "it is the same tree" same "$shown"
check "vos copy back" vos copy copied -toname returned -toserver $me
check "the database has it" site returned "$me" /vicep
check "a client of AFS" client returned
check "it is the same tree" same "$shown"

# Dumps.
check "vos dump there" vos dump copied -file "$base/afs.dump"
check "it is AFS's" sh -c "head -c 5 '$base/afs.dump' | od -An -tx1 | grep -q '01 b3 a1 13 22'"
check "vos size" says "dump_size: $(stat -c %s "$base/afs.dump")" 0 vos size copied -dump
check "vos dump -afs here" vos dump home -afs -file "$base/here.dump"
check "vos dump here" vos dump home -file "$base/native.dump"
check "vos restore of AFS's dump here" vos restore $me vicep fromthere "$base/afs.dump"
check "vos restore of AFS's dump there" vos restore $there z fromhere "$base/here.dump"
check "vos restore there of Rialto's dump" says "is a server of AFS" 1 \
    vos restore $there z fromnative "$base/native.dump"
head -c 100000 "$base/afs.dump" > "$base/half.dump"
check "a half dump changes nothing" says "ends too early" 1 vos restore $there z half \
    "$base/half.dump"
check "the database has nothing of it" refused vos listvldb half
for name in fromthere fromhere; do
    check "a client of AFS" client $name
    check "it is the same tree" same "$shown"
done
date=$(date -u '+%F %T')
sleep 2
echo more > "$shown/more" && sync "$shown/more" && rm "$shown/bytes"
check "vos dump of changes" vos dump fromhere -time "$date" -file "$base/changes.dump"
check "it is small" [ "$(stat -c %s "$base/changes.dump")" -lt 2000000 ]
check "vos restore of changes" vos restore -name fromthere -file "$base/changes.dump" \
    -overwrite incremental
cp -a "$base/kept" "$base/changed" && echo more > "$base/changed/more" && rm "$base/changed/bytes"
check "a client of AFS" client fromthere
check "it has them" diff -r --no-dereference "$base/changed" "$shown"

# Releases to the other kind of server.
check "a read-only site there of a volume here" vos addsite $there z home
check "vos release" says "successfully" 0 vos release home -verbose
check "the site has it" says "home.readonly" 0 vos listvol $there
check "a client of AFS" client home.readonly
check "it is the same tree" same "$shown"
newer() { echo newer > "$base/native/home/newer" && rm "$base/native/home/bytes"; }
check "it changes" newer
check "nothing changes before a release" same "$shown"
check "vos release of what changed" says "what changed since its last release" 0 \
    vos release home -verbose
cp "$base/native/home/newer" "$base/kept" && rm "$base/kept/bytes"
check "a client of AFS" client home.readonly
check "it has all of it" same "$shown"
check "a read-only site here of a volume there" vos addsite $me vicep copied
check "and beside it" vos addsite $there z copied
check "vos release" says "to 2 servers" 0 vos release copied -verbose
check "the site here has it" says "copied.readonly" 0 vos listvol $me
check "the site there has it" says "copied.readonly" 0 vos listvol $there
check "it is shown" within 30 "$RIALTO" fs mkmount "$base/native/copied" copied.readonly
cp -a "$base/native/copied" "$base/released"
check "a client of AFS" client copied
check "it has all of it" diff -r --no-dereference "$base/released" "$shown"
check "the volume itself is shown" within 30 \
    "$RIALTO" fs mkmount "$base/native/copied.rw" copied -rw
sleep 3
changed() {
    echo newest > "$base/native/copied.rw/newest" && sync "$base/native/copied.rw/newest" &&
        rm -r "$base/native/copied.rw/tree/dvb"
}
check "it changes" within 60 bash -c "base=$base; $(declare -f changed); changed"
check "nothing changes before a release" diff -r --no-dereference "$base/released" \
    "$base/native/copied"
check "vos release of what changed" says "what changed since its last release" 0 \
    vos release copied -verbose
check "the replica has all of it" diff -r --no-dereference "$base/native/copied.rw" \
    "$base/native/copied"
check "also the new file" grep -q newest "$base/native/copied/newest"
check "vos remsite" vos remsite $there z home
check "vos remove of the read-only site" vos remove $me vicep copied.readonly

# Without the key, or without the ports.
check "without the key it asks" says "one" 0 sh -c \
    "mv '$cell/afs.keytab' '$base/kept.keytab'; '$RIALTO' vos listvol $there --dir '$cell' &&
        echo one"
check "and changes nothing" says "--keys" 1 vos move home -toserver $there
check "the record says so" site home "$me" /vicep
check "with another key neither" says "its key is another one" 1 vos move home -toserver $there \
    --keys "$base/other.keytab"
check "it is not locked" refused sh -c "'$RIALTO' vos listvldb -locked --dir '$cell' | grep home"
check "with the key it does" vos move home -toserver $there --keys "$base/kept.keytab"
check "and back" vos move home -toserver $me --keys "$base/kept.keytab"
mv "$base/kept.keytab" "$cell/afs.keytab"

# A move that is killed, in the middle and at many places.
check "a larger volume" vos create $me vicep large -maxquota 900M -model acl -acl system:anyuser all
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/large" large
head -c 40000000 /dev/urandom > "$base/native/large/bytes"
sum=$(sha256sum < "$base/native/large/bytes")
to=$there at=/vicepz
for after in 0.2 0.5 0.8 1.1 1.5 2; do
    "$RIALTO" vos move large -toserver $to --dir "$cell" > "$base/killed.log" 2>&1 &
    moving=$!
    sleep $after
    kill -9 $moving 2> /dev/null && note "killed after $after s"
    wait $moving 2> /dev/null
    if ! site large $to $at > /dev/null || vos listvldb -locked | grep -q '^large'; then
        check "repeated it ends ($after)" vos move large -toserver $to
    fi
    check "it is at one place ($after)" site large $to $at
    check "it is listed once ($after)" [ "$(vos listvol | grep -c '^large ')" = 1 ]
    check "nothing is left over ($after)" refused sh -c \
        "'$RIALTO' vos listvol --dir '$cell' | grep -E '^(moving|arriving)'"
    if [ $to = $there ]; then to=$me at=/vicep; else to=$there at=/vicepz; fi
done
check "a client of AFS" client large
bytes() { [ "$(sha256sum < "$shown/bytes")" = "$sum" ]; }
check "it has its bytes" bytes

# Under a reader and a writer, which go on by AFS's client.
check "a client of AFS" client home
cp -a "$shown" "$base/read"
(
    while [ ! -e "$base/enough" ]; do
        diff -r "$base/read/tree" "$shown/tree" > /dev/null || echo "diff: $?"
        echo read
    done > "$base/reads" 2>&1
) &
reader=$!
(
    n=0
    while [ ! -e "$base/enough" ]; do
        n=$((n + 1))
        echo "line $n" >> "$shown/lines" || echo "write $n"
        mkdir "$shown/dir.$n" && rmdir "$shown/dir.$n" || echo "dir $n"
        echo $n > "$base/written"
    done > "$base/writes" 2>&1
) &
writer=$!
sleep 2
for round in 1 2; do
    check "it moves there while people work ($round)" vos move home -toserver $there
    sleep 2
    check "and back ($round)" vos move home -toserver $me
    sleep 2
done
touch "$base/enough"
check "the reader ends" within 60 tail --pid=$reader -f /dev/null
check "the writer ends" within 60 tail --pid=$writer -f /dev/null
check "no read failed" sh -c "sort '$base/reads' | uniq -c && ! grep -v '^read$' '$base/reads'"
check "no write failed" sh -c "! grep . '$base/writes'"
lines() { seq -f 'line %g' "$(cat "$base/written")" | diff - "$shown/lines"; }
check "each line is there once" lines

# Rialto's server with its ports closed.
rialto down --lazy > /dev/null
mv "$cell/cell.toml" "$base/open.toml" && cp "$base/closed.toml" "$cell/cell.toml"
check "it closes the ports of AFS" rialto up --no-mount
check "a move says so" says "[afs]" 1 vos move home -toserver $there \
    --keys "$cell/afs.keytab"
check "the record says where it is" site home "$me" /vicep
finish
