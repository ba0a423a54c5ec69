#!/bin/bash
# Volumes move between OpenAFS's servers and Rialto, both ways, by OpenAFS's vos, and dumps of each
# come into the other. All of it in a network of its own: OpenAFS at one address, Rialto at another,
# with one key.
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
base=$WORK/moves cell=$WORK/moves/cell here=192.0.2.1 there=192.0.2.2
afsd=()
# A process that waits for such a client can only be killed after the client.
(sleep 200 && pkill -9 -f "^afsd.fuse .*-mountdir $base/") 2> /dev/null &
watchdog=$!
cleanup() {
    local pid
    pkill -P $watchdog
    touch "$base/enough"
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/client" "$base/far" 2> /dev/null
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
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
vos() { openafs_there "$base/openafs" vos "$@"; }

check "a cell" rialto up --no-mount --cell x.org --listen $here:7620
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    "$cell/afs.keytab" | ktutil > /dev/null
cp "$cell/afs.keytab" /etc/openafs/server/rxkad.keytab
openafs asetkey add rxkad_krb5 1 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG > /dev/null
rialto down > /dev/null
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $here >> "$cell/cell.toml"
check "it opens the ports of AFS" rialto up --no-mount
check "a native mount" within 60 "$RIALTO" mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/native"
check "OpenAFS's servers" start_openafs_servers "$base/openafs" x.org $there

# A volume with a tree, made here and sent there.
check "a volume" openafs vos create $here a home -localauth
check "with room" openafs vos setfields home -maxquota 200000 -localauth
check "it is mounted" within 30 "$RIALTO" fs mkmount "$base/native/home" home
check "and everyone writes" within 30 "$RIALTO" fs setacl "$base/native/home" system:anyuser rlidwk
cp -r /usr/include/linux "$base/native/home/tree" && ln -s tree/version.h "$base/native/home/link"
ln "$base/native/home/tree/version.h" "$base/native/home/tree/again.h"
head -c 5000000 /dev/urandom > "$base/native/home/bytes"
many=300
[ "$QUICK" = yes ] || many=10000
mkdir "$base/native/home/many" &&
    seq $many | (cd "$base/native/home/many" && split --lines 1 --suffix-length 4 - file.)
truncate -s 20000000 "$base/native/home/holes"
same() { # same DIR: the mounted volume has this tree
    diff -r --no-dereference "$1" "$base/native/home"
}
cp -a "$base/native/home" "$base/kept"
check "vos dump here" openafs vos dump home -file "$base/dump" -localauth
check "vos restore there" vos restore $there z moved -file "$base/dump"
check "vos dump there" vos dump moved -file "$base/back"
check "it is as large" sh -c \
    "[ \$(stat -c %s '$base/back') -gt 24000000 ] && [ \$(stat -c %s '$base/dump') -gt 24000000 ]"
check "vos restore here" says "Restored volume back on $here" 0 \
    openafs vos restore $here a back -file "$base/back" -localauth
rmmount() { within 30 "$RIALTO" fs rmmount "$base/native/home"; }
show() { rmmount && within 30 "$RIALTO" fs mkmount "$base/native/home" "$1"; }
check "it is shown" show back
check "it is the same tree" same "$base/kept"

# The volume moves here, and back, and here again.
number() { vos examine "$1" | sed -n 's/^    RWrite: *\([0-9]*\).*/\1/p'; }
check "vos move from there to here" says "Volume $(number moved) moved from" 0 \
    vos move moved $there z $here a -verbose
check "its entry says so" says "server $here partition /vicepa RW Site" 0 vos listvldb moved
check "it is not there any more" refused sh -c \
    "'$OPENAFS/usr/sbin/vos' listvol $there -noauth 2> /dev/null | grep -q '^moved '"
check "it is here" rialto vos examine moved
check "it is shown" show moved
check "it is the same tree" same "$base/kept"
echo later > "$base/native/home/later" && rm "$base/native/home/bytes"
rm -rf "$base/kept" && cp -a "$base/native/home" "$base/kept"
check "vos move from here to there" vos move moved $here a $there z
check "its entry says so" says "server $there partition /vicepz RW Site" 0 vos listvldb moved
check "it is gone here" refused rialto vos examine moved
check "vos move from there to here" vos move moved $there z $here a
check "it is shown" show moved
check "it has what was changed" same "$base/kept"
check "Rialto's database learns of it" rialto vos syncvldb
check "and has it" says "moved" 0 rialto vos listvldb moved
check "vos copy from here to there" vos copy moved $here a copied $there z
check "and back" vos copy copied $there z returned $here a
check "it is shown" show returned
check "it is the same tree" same "$base/kept"

# A volume there is released to a site here, then what changed, and then it is lost.
check "vos restore there" vos restore $there z far -file "$base/dump"
check "a client of AFS" mount_openafs "$base/openafs/etc" "$base/far.client" "$base/far" far
# OpenAFS's vos lets two seconds pass for clocks: a volume that is newer is sent as a whole.
sleep 3
check "a site here" vos addsite $here a far
check "vos release" says "Released volume far successfully" 0 vos release far
check "it is here" says "far.readonly" 0 rialto vos examine far.readonly
check "vos examine asks both" says "server $here partition /vicepa RO Site" 0 vos examine far
check "it is shown" show far.readonly
from_far() { # DIR: the client shows what the volume there has
    diff -r --no-dereference "$base/far" "$1"
}
check "the replica has all of it" from_far "$base/native/home"
sleep 1
echo changed > "$base/far/tree/version.h" && rm "$base/far/bytes" && mkdir "$base/far/new" &&
    echo new > "$base/far/new/file"
check "the replica does not change" test -e "$base/native/home/bytes" -a \
    ! -e "$base/native/home/new"
check "vos release of what changed" says "(as of " 0 vos release far -verbose
check "the replica has all of it" from_far "$base/native/home"
check "a release of nothing" vos release far
check "the replica has all of it" from_far "$base/native/home"
check "the replica becomes the volume" vos convertROtoRW $here a far -force
check "it is shown" show far
check "it is written" sh -c "echo more > '$base/native/home/more'"
check "it is at one place" says "server $here partition /vicepa RW Site" 0 vos listvldb far

# The same under a reader and a writer, which go on by AFS's client.
check "vos restore there" vos restore $there z work -file "$base/dump"
check "a client of AFS" mount_openafs "$base/openafs/etc" "$base/afsd" "$base/client" work
(
    while [ ! -e "$base/enough" ]; do
        diff -r "$base/kept/tree" "$base/client/tree" > /dev/null || echo "diff: $?"
        echo read
    done > "$base/reads" 2>&1
) &
reader=$!
(
    n=0
    while [ ! -e "$base/enough" ]; do
        n=$((n + 1))
        echo "line $n" >> "$base/client/lines" || echo "write $n"
        mkdir "$base/client/dir.$n" && rmdir "$base/client/dir.$n" || echo "dir $n"
        echo $n > "$base/written"
    done > "$base/writes" 2>&1
) &
writer=$!
sleep 2
for round in 1 2; do
    check "it moves here while people work ($round)" vos move work $there z $here a
    sleep 2
    check "and back ($round)" vos move work $here a $there z
    sleep 2
done
check "they do much" within 100 sh -c \
    "until [ \$(cat '$base/written') -gt 50 ]; do sleep 0.2; done"
touch "$base/enough"
check "the reader ends" within 60 tail --pid=$reader -f /dev/null
check "the writer ends" within 60 tail --pid=$writer -f /dev/null
check "no read failed" sh -c "sort '$base/reads' | uniq -c && ! grep -v '^read$' '$base/reads'"
check "no write failed" sh -c "! grep . '$base/writes'"
lines() { seq -f 'line %g' "$(cat "$base/written")" | diff - "$base/client/lines"; }
check "each line is there once" lines
finish
