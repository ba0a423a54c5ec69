#!/bin/bash
# OpenAFS: a cell of one machine and the FUSE client (afsd.fuse), in a network of their own. Its
# servers have fixed places in /etc, /var and /; this uses them only where no other cell is, and
# takes everything away again.
. "$(dirname "$0")/lib.sh"
packages=(krb5-user openafs-dbserver openafs-fileserver openafs-krb5 openafs-fuse openafs-client)
programs=(bosserver afsd.fuse bos vos pts asetkey ktutil ip nsenter)
network=rialto-openafs address=10.64.0.1
cell=bench.test realm=BENCH.TEST partition=/vicepr
mark=/etc/openafs/server/rialto-bench

in_cell() { within $network "$@"; }
known() { in_cell "$@" -localauth; }
normal() { in_cell bos status $address "$1" -localauth | grep -q 'running normally'; }

serve() {
    [ -e $mark ] || [ ! -e /etc/openafs/server/KeyFileExt ] ||
        fail "this machine has a cell of its own"
    network $network $address
    mkdir -p /etc/openafs/server $partition "$dir/partition" /var/lib/openafs/local
    [ -e $mark ] || cp -a /etc/openafs/CellServDB /etc/openafs/CellServDB.before-bench \
        2>/dev/null || true
    touch $mark
    mountpoint -q $partition || mount --bind "$dir/partition" $partition
    touch $partition/AlwaysAttach
    printf '>%s\n%s #%s\n' $cell $address $cell |
        tee /etc/openafs/CellServDB >/etc/openafs/server/CellServDB
    echo $cell | tee /etc/openafs/ThisCell >/etc/openafs/server/ThisCell
    : >/etc/openafs/server/UserList
    echo $address >/var/lib/openafs/local/NetInfo
    if [ ! -e /etc/openafs/server/KeyFileExt ]; then
        printf '%s\n' "addent -password -p afs/$cell@$realm -k 1 -e aes256-cts-hmac-sha1-96" \
            for-measuring-only "wkt $dir/keytab" q | ktutil
        asetkey add rxkad_krb5 1 18 "$dir/keytab" afs/$cell@$realm
    fi
    background server bosserver nsenter --net=/run/netns/$network bosserver -nofork
    patiently 20 known bos status $address
    local service volume
    # The databases must have found their quorum before the file server asks them.
    for service in ptserver vlserver; do
        normal $service || known bos create $address $service simple /usr/lib/openafs/$service ||
            true
    done
    patiently 90 known pts listentries
    patiently 90 known vos listvldb
    normal dafs || known bos create $address dafs dafs \
        "/usr/lib/openafs/dafileserver -L -p 32 -udpsize 2097152" \
        /usr/lib/openafs/davolserver /usr/lib/openafs/salvageserver /usr/lib/openafs/dasalvager ||
        true
    patiently 60 known vos listpart $address
    # Without Kerberos there are no tokens: whoever comes from this address may do everything.
    known pts examine $address 2>/dev/null | grep -q Name ||
        { known pts createuser $address && known pts adduser $address system:administrators; }
    for volume in root.afs root.cell bench; do
        known vos examine $volume >/dev/null 2>&1 ||
            known vos create $address ${partition#/vicep} $volume -maxquota 0
    done
    remember server $(pgrep -P "$(awk '$1 == "server" { print $2; exit }' "$dir/pids")" || true)
}

attach() {
    rm -rf "$dir/cache"
    mkdir -p "$dir/client" "$dir/cache"
    cp /etc/openafs/ThisCell /etc/openafs/CellServDB "$dir/client/"
    echo "$mount:$dir/cache:2000000" >"$dir/client/cacheinfo"
    background starter afsd nsenter --net=/run/netns/$network afsd.fuse -confdir "$dir/client" \
        -cachedir "$dir/cache" \
        -mountdir "$mount" -rootvol bench -blocks 2000000 -files 16000 -stat 16000 -daemons 6 \
        -nosettime
    patiently 30 mounted
    # It goes into the background: the process that stays is the client.
    remember client "$(pgrep -n -f "afsd.fuse .*-mountdir $mount ")"
    patiently 20 answers
}

purge() {
    [ -e $mark ] || return 0
    ! mountpoint -q $partition || umount $partition
    rmdir $partition 2>/dev/null || true
    rm -rf /etc/openafs/server /etc/openafs/ThisCell /etc/openafs/BosConfig /var/lib/openafs/db/* \
        /var/lib/openafs/local/*
    mkdir -p /etc/openafs/server
    [ ! -e /etc/openafs/CellServDB.before-bench ] ||
        mv /etc/openafs/CellServDB.before-bench /etc/openafs/CellServDB
    [ ! -e /run/netns/$network ] || ip netns del $network
}

peer "$@"
