#!/bin/bash
# record.sh [DIR]: records recorded.txt again, from OpenAFS's own programs and servers.
#
# It needs root and the packages openafs-dbserver openafs-fileserver openafs-client openafs-krb5
# krb5-user (Debian's 1.8.9 was recorded). The cell lives in its own network and mount name spaces
# with its files in DIR [default: a new directory], so it never meets another OpenAFS on the
# machine. No kernel client is needed, as vos and pts ask the servers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${IN_CELL:-}" ]; then
    DIR=${1:-$(mktemp -d)} IN_CELL=yes
    export DIR IN_CELL
    exec unshare --net --mount --pid --fork --kill-child "$0"
fi
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
python3 "$here/session.py" record "$here" $host
bos shutdown $host -localauth -wait
