#!/bin/bash
# run.sh [--bin DIR] XFSTESTS [TEST...]: the generic tests of xfstests, built in XFSTESTS, on two
# volumes of a cell that this makes. Root only. Without TEST: all of generic that left-out does not
# name. Prints PASS, FAIL and SKIP lines; the exit code is 1 if any failed.
#
# xfstests knows file systems by FUSE as `fuse.NAME`, mounts them with /sbin/mount.fuse.NAME and has
# no word for this one: in a mount name space of its own this script adds that helper and the word,
# so nothing outside changes. SECONDS_MAX (default 600) is how long one test may take.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../target/release
[ "${1:-}" != --bin ] || { bin=$(cd "$2" && pwd) || exit 2; shift 2; }
[ $# -ge 1 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "run.sh: root only" >&2; exit 2; }
if [ "${INSIDE:-}" != yes ]; then INSIDE=yes exec unshare --mount --propagation private "$0" \
    --bin "$bin" "$@"; fi
tests=$(cd "$1" && pwd) || exit 2
shift
[ -x "$tests/check" ] && [ -x "$tests/src/lstat64" ] ||
    { echo "run.sh: xfstests is not built in $tests; run 'make' there" >&2; exit 2; }
for user in fsgqa fsgqa2; do id $user > /dev/null 2>&1 ||
    { echo "run.sh: xfstests needs the user $user; run 'useradd -m $user'" >&2; exit 2; }; done
rialto=$bin/rialto

work=$(mktemp -d -p /var/tmp rialto-xfstests.XXXXXX)
stop() {
    cd /
    umount -l "$work/test" "$work/scratch" 2> /dev/null
    "$rialto" down --lazy --dir "$work/cell" > /dev/null 2>&1
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM
mkdir "$work/test" "$work/scratch" "$work/sbin"
export RIALTO_HOME=$work/cell
"$rialto" up --dir "$work/cell" --no-mount --cell xfstests.test > "$work/up.log" 2>&1 ||
    { cat "$work/up.log" >&2; exit 1; }
for volume in test scratch; do
    "$rialto" vos create localhost vicep $volume --dir "$work/cell" > /dev/null || exit 1
    ln -s cell/server.sock "$work/$volume.sock"
done

# The helper, and the word. The source of the mount names the volume by the name of the socket.
cat > "$work/sbin/mount.fuse.rialto" << END
#!/bin/bash
source=\${1#rialto:} place=\$2 options=suid,dev
shift 2
while getopts 'o:nsvfr' flag; do [ \$flag != o ] || options=\$options,\$OPTARG; done
volume=\${source##*/}
exec "$work/sbin/mount.rialto" "\$source" "\$place" -o "\$options,volume=\${volume%.sock}"
END
chmod +x "$work/sbin/mount.fuse.rialto"
ln -s "$rialto" "$work/sbin/mount.rialto"
mount -t overlay -o "lowerdir=$work/sbin:/usr/sbin" overlay /usr/sbin || exit 1
sed "s/-e 's\/nfs4\/nfs\/'/-e 's\/fuse.rialto\/fuse\/' &/" "$tests/common/rc" > "$work/rc"
mount --bind "$work/rc" "$tests/common/rc" || exit 1
export TEST_DEV=rialto:unix:$work/test.sock TEST_DIR=$work/test FSTYP=fuse FUSE_SUBTYP=.rialto \
    SCRATCH_DEV=rialto:unix:$work/scratch.sock SCRATCH_MNT=$work/scratch RESULT_BASE=$work/results

passed=0 failed=0 skipped=0
one() { # one TEST
    local said status reason
    reason=$(sed -n "s:^$1  *::p" "$here/left-out")
    if [ -n "$reason" ]; then
        echo "SKIP $1: $reason"; skipped=$((skipped + 1)); return
    fi
    mountpoint -q "$work/test" || mount -t fuse.rialto "$TEST_DEV" "$work/test" || exit 1
    said=$(cd "$tests" && timeout -k 10 "${SECONDS_MAX:-600}" ./check "$1" 2>&1)
    status=$?
    if [ $status -ge 124 ]; then
        echo "FAIL $1: it takes more than ${SECONDS_MAX:-600} s"; failed=$((failed + 1))
        umount -l "$work/scratch" 2> /dev/null
    elif [ -s "$work/results/$1.notrun" ]; then
        echo "SKIP $1: $(head -n 1 "$work/results/$1.notrun")"; skipped=$((skipped + 1))
    elif [ $status -eq 0 ]; then
        echo "PASS $1"; passed=$((passed + 1))
    else
        echo "FAIL $1"; failed=$((failed + 1))
        printf '%s\n' "$said" | tail -n 15 | sed 's/^/     | /'
    fi
}
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # words
    set -- $(cd "$tests/tests" && ls generic/[0-9][0-9][0-9])
fi
for test; do one "$test"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
