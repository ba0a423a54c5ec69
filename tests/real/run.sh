#!/bin/bash
# run.sh [--quick] [--bin DIR] [--on DIR] [--transport T] [PART...]: people's real work on a cell
# with two mounts, and what must not hurt it.
#
#   --quick   short forms, for every change; without it the long ones, for hours
#   --bin     where rialto and examples/ were built [default: target/release]
#   --on      no cell: run the parts that need only a directory there, to see that they test what
#             they say
#   --transport  auto, uring or dev: how requests come to the mounts [default: $RIALTO_TRANSPORT,
#             or auto]
#   PART      cli verbs nonroot access login remote_admin sessions kerberos fences audit secrets
#             sealed joins afs afs_moves afs_vos afs_joins afs_takeover afs_session
#             afs_procedures abroad_afs afs_mixed, and servers etcd backup logins finding
#             openafs_session lost_server standby unwell upgrade peer direct files, which make
#             cells of their own (own: all of these, own-1 and own-2: the first ones and the
#             others);
#             outlive, which kills machines a hundred times, and quorum, which has etcd without a
#             quorum for five minutes, in none of the lists;
#             acl semantics stopped volumes mountpoints places mounting silent keeper supervised
#             tree git sqlite random build crash hostile full conformance, which work on the two
#             mounts (shared: all of these; shared-1 and shared-2: the first ones and the others);
#             default: all
#
# Each part prints PASS and FAIL lines; the exit code is 1 if any failed.
. "$(dirname "$0")/../lib/real.sh"
here=$(cd "$(dirname "$0")" && pwd)
# Two lists that take about as long as each other.
own_1=(cli verbs nonroot access login remote_admin sessions kerberos fences audit secrets sealed
    joins afs afs_moves afs_vos afs_joins afs_takeover afs_session afs_procedures abroad_afs
    afs_mixed)
own_2=(servers etcd backup logins finding openafs_session lost_server standby unwell upgrade peer
    direct files)
own=("${own_1[@]}" "${own_2[@]}")
shared_1=(acl semantics stopped volumes mountpoints places mounting silent keeper)
shared_2=(supervised tree git sqlite random build crash hostile full conformance)
shared=("${shared_1[@]}" "${shared_2[@]}")
QUICK=no BIN=${CARGO_TARGET_DIR:-$here/../../target}/release ON='' PART=run
parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) QUICK=yes ;;
        --bin) BIN=$2; shift ;;
        --on) ON=$2; shift ;;
        --transport) export RIALTO_TRANSPORT=$2; shift ;;
        -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
        own) parts+=("${own[@]}") ;;
        own-1) parts+=("${own_1[@]}") ;;
        own-2) parts+=("${own_2[@]}") ;;
        shared) parts+=("${shared[@]}") ;;
        shared-1) parts+=("${shared_1[@]}") ;;
        shared-2) parts+=("${shared_2[@]}") ;;
        *) parts+=("$1") ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=("${own[@]}" "${shared[@]}")

BIN=$(cd "$BIN" && pwd) || exit 2
RIALTO=$BIN/rialto TOOLS=$BIN/examples
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests
WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-real.XXXXXX")
# The sockets for users of servers under test are not among those of this machine.
export RIALTO_RUN=$WORK/run
mkdir -m 755 "$RIALTO_RUN"
# The conformance cases come in as other users too.
chmod 755 "$WORK"
mkdir -p "$CACHE"
export QUICK RIALTO TOOLS CACHE WORK

if [ -n "$ON" ]; then
    A=$(mktemp -d "$ON/rialto-real.XXXXXX") B=$A CELL=''
elif [ ! -w /dev/fuse ]; then
    skip "/dev/fuse is not there or not ours to use, so nothing can be mounted"
    rmdir "$RIALTO_RUN" "$WORK"
    exit 0
else
    A=$WORK/A B=$WORK/B CELL=$WORK/cell
fi
export A B CELL

cleanup() {
    trap - EXIT INT TERM
    if [ -n "$CELL" ]; then
        within 120 "$RIALTO" down --lazy --dir "$CELL" > "$WORK/down.log" 2>&1 ||
            cat "$WORK/down.log"
    else
        rm -rf "$A"
    fi
    if [ "$failures" -gt 0 ] && [ -n "$CELL" ]; then
        echo "the cell's logs are kept in $WORK"
        rm -rf "$CELL/vicep" "$CELL/cache"
    else
        rm -rf --one-file-system "$WORK"
    fi
}
trap cleanup EXIT
trap 'failures=1; exit 130' INT TERM

if [ -n "$CELL" ]; then
    mkdir -p "$A" "$B"
    within 120 "$RIALTO" up --dir "$CELL" --at "$A" --listen 127.0.0.1:0 --trust 127.0.0.0/8 \
        --trust-root > "$WORK/up.log" 2>&1 && mount_b >> "$WORK/up.log" 2>&1 ||
        { fail "a cell with two mounts: $(cat "$WORK/up.log")"; exit 1; }
fi
for part in "${parts[@]}"; do
    start=$SECONDS
    PART=$part bash "$here/$part.sh" || failures=$((failures + 1))
    [ -e "$WORK/finished.$part" ] || PART=$part fail "it came to its end"
    note "$part took $((SECONDS - start)) s"
done
if [ -n "$CELL" ]; then
    if grep -l 'panicked at' "$CELL"/logs/*.log 2>/dev/null; then
        fail "a daemon panicked"; else pass "no daemon panicked"; fi
    # What was answered here must be what the server says (docs/spec/delegation.md): a difference
    # that no part noticed is one all the same.
    if grep -l 'DE-5' "$CELL"/logs/*.log 2>/dev/null; then
        fail "a client answered otherwise than the server"; else pass \
            "clients answered as the server did"; fi
    PART=down check "everything stops in order" within 120 "$RIALTO" down --dir "$CELL"
fi
[ "$failures" -eq 0 ]
