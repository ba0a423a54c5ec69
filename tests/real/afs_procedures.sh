#!/bin/bash
# Every procedure of AFS-3's five services is called at OpenAFS's servers and at Rialto's ports, by
# a stranger and by the holder of the cell's key: the answers are the same but for a list of
# differences (tests/afs-procedures), and the table of procedures in the documents is true. All of
# it in a network of its own: OpenAFS at one address, Rialto at another, with one key.
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
root=$(cd "$(dirname "$0")/../.." && pwd)
base=$WORK/afs_procedures cell=$WORK/afs_procedures/cell here=192.0.2.1 there=192.0.2.2
cleanup() {
    stop_openafs_servers "$base/openafs"
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
}
trap cleanup EXIT
mkdir -p "$base"/{etc,openafs}
ip link set lo up && ip address add "$here/24" dev lo && ip address add "$there/24" dev lo ||
    { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs x.org $here
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }

check "a cell" rialto up --no-mount --cell x.org --listen $here:7620
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    "$cell/afs.keytab" | ktutil > /dev/null
cp "$cell/afs.keytab" /etc/openafs/server/rxkad.keytab
openafs asetkey add rxkad_krb5 1 18 /etc/openafs/server/rxkad.keytab afs/x.org@X.ORG > /dev/null
rialto down > /dev/null
# The partition has the name that OpenAFS's has.
sed -i 's|^partition = .*|partitions = ["vicepz"]|' "$cell/cell.toml"
mv "$cell/vicep" "$cell/vicepz" && sed -i 's/vicep$/vicepz/' "$cell/partitions.made"
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $here >> "$cell/cell.toml"
check "it opens the ports of AFS" within 90 "$RIALTO" server --daemon --dir "$cell"
check "without volumes" rialto vos remove root.cell -force
# Numbers of volumes above all others that answers have.
check "with numbers as OpenAFS has" openafs vos create $here z number -id 536870000 -localauth
openafs vos remove $here z number -localauth > /dev/null
check "OpenAFS's servers" start_openafs_servers "$base/openafs" x.org $there
# Its time never comes.
check "with an instance for bos" openafs bos create $there rialto cron /bin/true never -localauth

ask() { # ask ADDRESS OUTPUT [TABLE]
    within 120 "$TOOLS/afs_procedures" "$1" "$cell/afs.keytab" x.org 25 "${@:3}" > "$2" 2>&1
    local code=$?
    [ $code -eq 0 ] || tail -n 40 "$2"
    return $code
}
check "all calls to OpenAFS's servers" ask $there "$base/theirs"
ask $here "$base/ours" "$root/docs/spec/afs3-procedures.md" > "$base/table"
check "the table of procedures is true" sh -c \
    "grep -vE '^[A-Za-z]+\.[A-Za-z0-9]+ (stranger|superuser), ' '$base/ours' && exit 1 || exit 0"
grep -E '^[A-Za-z]+\.[A-Za-z0-9]+ (stranger|superuser), ' "$base/ours" > "$base/ours.calls"
python3 "$root/tests/afs-procedures/compare.py" "$base/theirs" "$base/ours.calls" > "$base/log" 2>&1
code=$?
cat "$base/log"
[ $code -eq 0 ] || failures=$((failures + 1))
finish
