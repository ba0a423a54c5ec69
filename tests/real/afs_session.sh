#!/bin/bash
# A recorded session of OpenAFS's own vos, pts, bos, udebug and rxdebug (tests/openafs-session and
# its directory ports) at the ports of AFS of a Rialto cell: the same commands end as at OpenAFS's
# servers, and print the same but for a list of differences. All of it in a network of its own.
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
session=$(cd "$(dirname "$0")/../openafs-session" && pwd)
base=$WORK/afs_session cell=$WORK/afs_session/cell address=10.94.0.1
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$base"/{etc,programs}
ip link set lo up && ip address add "$address/24" dev lo || { fail "a network"; finish; }
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs session.test $address
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }

check "a cell" rialto up --no-mount --cell session.test --listen $address:7620
printf 'addent -password -p %s -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    afs/session.test@SESSION.TEST "$cell/afs.keytab" | ktutil > /dev/null
cp "$cell/afs.keytab" /etc/openafs/server/rxkad.keytab
openafs asetkey add rxkad_krb5 1 18 /etc/openafs/server/rxkad.keytab \
    afs/session.test@SESSION.TEST > /dev/null
rialto down > /dev/null
# Partitions with the names that OpenAFS gives them.
sed -i 's|^partition = .*|partitions = ["vicepa", "vicepb"]|' "$cell/cell.toml"
mv "$cell/vicep" "$cell/vicepa" && sed -i 's/vicep/vicepa/' "$cell/partitions.made"
printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $address >> "$cell/cell.toml"
check "with two partitions and the ports of AFS" within 90 "$RIALTO" server --daemon \
    --new-partition vicepb --dir "$cell"
check "without volumes" rialto vos remove root.cell -force
# Numbers of volumes that the comparison knows from others, since later ones are higher.
check "with numbers as OpenAFS has" openafs vos create $address a number -id 536870000 -localauth
openafs vos remove $address a number -localauth > /dev/null
for program in vos pts bos udebug rxdebug; do
    ln -s "$(PATH=$OPENAFS/usr/bin:$OPENAFS/usr/sbin type -P $program)" "$base/programs/$program"
done
LD_LIBRARY_PATH=$(openafs_libraries) within 500 python3 "$session/session.py" \
    "${SESSION_MODE:-replay}" "$session:$session/ports" $address "$base" "$base/programs" \
    > "$base/log" 2>&1
code=$?
grep -E '^(PASS|FAIL|     )' "$base/log"
[ $code -eq 0 ] || { tail -n 5 "$base/log"; failures=$((failures + 1)); }
finish
