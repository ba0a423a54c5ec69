#!/bin/bash
# record.sh [--without-client] [DIR]: records recorded.txt, ports/recorded.txt and fs/recorded.txt
# again, from OpenAFS's own programs and servers.
#
# It needs root and the packages openafs-dbserver openafs-fileserver openafs-client openafs-krb5
# krb5-user krb5-kdc krb5-admin-server (Debian's 1.8.9 was recorded), and those of
# tests/lib/guest.sh. The cell lives in its own network and mount name spaces with its files in DIR
# [default: a new directory], so it never meets another OpenAFS on the machine. vos and pts ask the
# servers; fs asks the kernel's client, which runs in a machine of its own (DIR/guest); without it
# fs/recorded.txt stays as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests
within() { timeout --kill-after=10 "$@"; }
. "$here/../lib/openafs.sh"
. "$here/../lib/guest.sh"
if [ -z "${IN_CELL:-}" ]; then
    CLIENT=yes
    [ "${1:-}" != --without-client ] || { CLIENT=no && shift; }
    DIR=${1:-$(mktemp -d)} IN_CELL=yes
    export DIR IN_CELL CLIENT
    get_openafs
    [ $CLIENT = no ] || get_guest
    exec unshare --net --mount --pid --fork --kill-child "$0"
fi
OPENAFS=$CACHE/openafs GUEST=$CACHE/guest
host=10.94.0.1 cell=session.test realm=SESSION.TEST
mount --make-rprivate /
mount -t proc proc /proc
ip link set lo up
ip tuntap add afs0 mode tap
ip addr add $host/24 dev afs0
ip link set afs0 up
mkdir -p "$DIR"/{etc/server,var/local,var/db,var/logs,log,a,b} /vicepa /vicepb
touch "$DIR"/{a,b}/AlwaysAttach
for of in etc etc/server; do
    printf '>%s #session\n%s #fs.%s\n' $cell $host $cell > "$DIR/$of/CellServDB"
    echo $cell > "$DIR/$of/ThisCell"
done
echo $realm > "$DIR/etc/server/krb.conf"
echo admin > "$DIR/etc/server/UserList"
echo $host > "$DIR/var/local/NetInfo"
chmod 700 "$DIR"/var/{local,db}
mount --bind "$DIR/etc" /etc/openafs
mount --bind "$DIR/var" /var/lib/openafs
mount --bind "$DIR/log" /var/log/openafs
mount --bind "$DIR/a" /vicepa
mount --bind "$DIR/b" /vicepb
keytab=/etc/openafs/server/rxkad.keytab
printf 'addent -password -p afs/%s@%s -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    $cell $realm $keytab | ktutil > /dev/null
asetkey add rxkad_krb5 1 18 $keytab afs/$cell@$realm
bosserver -nofork > "$DIR/bos.log" 2>&1 &
eventually() {
    for _ in $(seq 150); do "$@" > /dev/null 2>&1 && return; sleep 0.2; done
    echo "never true: $*" >&2
    exit 1
}
elected() { udebug $host "$1" | grep -q 'Recovery state 1f'; }
eventually bos status $host -localauth
programs=/usr/lib/openafs
bos create $host ptserver simple $programs/ptserver -localauth
bos create $host vlserver simple $programs/vlserver -localauth
# A file server that registers before the election is over does so again only minutes later.
eventually elected 7002
eventually elected 7003
bos create $host dafs dafs "$programs/dafileserver -L" $programs/davolserver \
    $programs/salvageserver $programs/dasalvager -localauth
eventually vos listpart $host -localauth
listed() { vos listaddrs -localauth -noresolve | grep -q $host; }
eventually listed
python3 "$here/session.py" record "$here" $host /afs/$cell
python3 "$here/session.py" record "$here/ports" $host /afs/$cell
[ $CLIENT = yes ] || { bos shutdown $host -localauth -wait; exit; }

# The machine with the client, and an administrator's ticket for it.
mkdir -p "$DIR/guest"
start_guest "$DIR/guest" afs0
cat > "$DIR/guest/shared/krb5.conf" << END
[libdefaults]
    default_realm = $realm
    dns_lookup_kdc = false
    rdns = false
[realms]
    $realm = {
        kdc = $host:8888
    }
END
cat > "$DIR/kdc.conf" << END
[realms]
    $realm = {
        database_name = $DIR/principal
        key_stash_file = $DIR/stash
        kdc_listen = $host:8888
        kdc_tcp_listen = $host:8888
    }
END
export KRB5_CONFIG=$DIR/guest/shared/krb5.conf KRB5_KDC_PROFILE=$DIR/kdc.conf
kdb5_util create -s -r $realm -P master > /dev/null 2>&1
for one in "-pw password admin" "-e aes256-cts-hmac-sha1-96:normal -pw secret afs/$cell"; do
    kadmin.local -q "addprinc $one" > /dev/null 2>&1; done
krb5kdc -n -r $realm > "$DIR/kdc.log" 2>&1 &

# What fs finds.
{
    for name in root.cell fs.work; do vos create $host a $name -localauth; done
    for name in admin ann ben; do pts createuser $name -localauth; done
    pts creategroup crew -localauth
    pts adduser admin system:administrators -localauth
} > /dev/null
cp -r "$here/session.py" "$here/fs" "$DIR/guest/shared/"
guest_openafs $cell $host
guest_login openafs $cell $realm admin password 0
guest 300 "set -e
fs setacl /afs/$cell system:anyuser rl
cd /afs/$cell
python3 /shared/session.py record /shared/fs $host /afs/$cell"
stop_guest
cp "$DIR/guest/shared/fs/recorded.txt" "$here/fs/"
bos shutdown $host -localauth -wait
