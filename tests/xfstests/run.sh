#!/bin/bash
# run.sh [OPTION...] [TEST...]: runs the generic tests of xfstests on a cell of their own.
#
#   --mounts N     1: one client, over the server's socket (default);
#                  2: a second client, over TCP, also lists and reads what the tests make, so that
#                  promises are broken and delegations are recalled all the time
#   --bin DIR      where rialto was built [default: target/release]
#   --seconds N    a test that takes longer is killed and has failed [default: 120]
#   --group NAME   all tests of this group, such as quick or auto, that are not in excluded
#   --results DIR  where the results go [default: below target/xfstests]
#   TEST           a number (035) or name (generic/035); runs even if it is excluded
#
# Without --group and TEST: all of the group auto. Only root can run it. xfstests must have been
# built: git clone https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git (a mirror is
# https://github.com/kdave/xfstests), then make, at /opt/xfstests or where $XFSTESTS says; its
# README lists the packages. Without the users fsgqa, fsgqa2 and 123456-fsgqa, which that page
# explains, tests about permissions do not run.
#
# The exit code is 0 if no test failed, 1 if one did, 2 if the tests cannot run.
# docs/measurements/xfstests.md has the latest results.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }
cannot() { echo "run.sh: $*" >&2; exit 2; }

target=${CARGO_TARGET_DIR:-$here/../../target}
mounts=1 bin=$target/release seconds=120 group='' results=$target/xfstests
tests=()
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --mounts | --bin | --seconds | --group | --results)
            [ $# -ge 2 ] || cannot "$1 needs a value"
            declare "${1#--}=$2"; shift ;;
        -*) usage >&2; exit 2 ;;
        *) tests+=("generic/${1#generic/}") ;;
    esac
    shift
done
xfstests=${XFSTESTS:-/opt/xfstests}
[ -x "$xfstests/check" ] && [ -x "$xfstests/ltp/fsx" ] || cannot "xfstests is not built in" \
    "$xfstests: git clone https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git, make, and set" \
    "XFSTESTS to its directory"
[ "$(id -u)" = 0 ] || cannot "only root can run xfstests"
[ -w /dev/fuse ] || cannot "/dev/fuse is not there, so nothing can be mounted"
case $mounts in 1 | 2) ;; *) cannot "--mounts is 1 or 2" ;; esac
rialto=$(cd "$bin" && pwd)/rialto
[ -x "$rialto" ] || cannot "there is no $rialto: cargo build --release, or --bin"
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 2

# In a name space of its own, without other trees of Rialto: xfstests asks df for all mounts, and
# one whose server is away would make it wait.
if [ -z "${OWN_MOUNTS:-}" ]; then
    arguments=(--mounts "$mounts" --bin "$bin" --seconds "$seconds" --results "$results")
    [ -z "$group" ] || arguments+=(--group "$group")
    OWN_MOUNTS=yes exec unshare --mount --propagation private bash "$here/run.sh" \
        "${arguments[@]}" "${tests[@]}"
fi
findmnt -rno TARGET -t fuse.rialto | tac | while read -r other; do umount -il "$other"; done

# Test programs that run as other users must reach the mounts.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-xfstests.XXXXXX")
export RIALTO_RUN=$work/run
chmod 755 "$work"
cell=$work/cell
mkdir "$work"/{bin,test,scratch,second-test,second-scratch}
ln -s "$rialto" "$work/bin/mount.rialto"
# xfstests takes two mounts of one source for the same: each volume's has a name of its own.
ln -s "$cell/server.sock" "$work/test.sock"
ln -s "$cell/server.sock" "$work/scratch.sock"

# mount(8) for xfstests. The helper is not installed, and a mount of ours refuses what some tests
# are about (suid, dev): the kernel alone gets those.
cat > "$work/bin/mount" <<SCRIPT
#!/bin/bash
real=$(command -v mount) helper=$work/bin/mount.rialto work=$work cell=$cell
SCRIPT
cat >> "$work/bin/mount" <<'SCRIPT'
kind='' options='' place=() rest=()
all=("$@")
while [ $# -gt 0 ]; do
    case $1 in
        -t) kind=$2; shift ;;
        -t*) kind=${1#-t} ;;
        -o) options=$options,$2; shift ;;
        -o*) options=$options,${1#-o} ;;
        -*) rest+=("$1") ;;
        *) place+=("$1") ;;
    esac
    shift
done
[ ${#place[@]} -gt 0 ] || exec "$real" "${all[@]}"
at=${place[-1]}
is_ours() { [ "$kind" = fuse.rialto ] || findmnt -rno FSTYPE "$at" | grep -qx fuse.rialto; }
case $options in *remount*) ;; *) [ "$kind" = fuse.rialto ] || exec "$real" "${all[@]}" ;; esac
is_ours && [[ $options != *bind* ]] || exec "$real" -i "${all[@]}"
kernels='' ours=''
for option in ${options//,/ }; do
    case $option in
        suid | dev) kernels=$kernels,$option ;;
        *) ours=$ours,$option ;;
    esac
done
if [[ $options = *remount* ]]; then
    "$helper" none "$at" -o "${ours#,}" || exit
    # The helper sets nosuid and nodev again.
    kernels=,suid,dev
else
    volume=root.cell
    [ "${place[0]}" = "unix:$work/scratch.sock" ] && volume=scratch
    "$helper" "${place[0]}" "$at" -o "volume=$volume,dir=$cell$ours" || exit
    [[ $options =~ (^|,)nosuid ]] || kernels=$kernels,suid
    [[ $options =~ (^|,)nodev ]] || kernels=$kernels,dev
fi
[ -z "$kernels" ] || exec "$real" -i -o "remount,bind$kernels" "$at"
SCRIPT
chmod 755 "$work/bin/mount"

# Kills a process and all below it.
kill_tree() {
    local child
    kill -STOP "$1" 2> /dev/null
    for child in $(ps -o pid= --ppid "$1"); do kill_tree "$child"; done
    kill -KILL "$1" 2> /dev/null
}

check_pid='' reader_pid=''
cleanup() {
    trap - EXIT INT TERM
    for pid in $check_pid $reader_pid; do kill_tree "$pid"; done
    for place in "$work"/{second-,}{scratch,test}; do
        while mountpoint -q "$place"; do
            timeout 60 "$rialto" umount --lazy --dir "$cell" "$place" > /dev/null 2>&1 ||
                umount -il "$place" || break
        done
    done
    timeout 120 "$rialto" down --lazy --dir "$cell" > "$results/down.log" 2>&1
    cp -r "$cell/logs" "$results/" 2> /dev/null
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

vos() { timeout 60 "$rialto" vos "$@" --dir "$cell" >> "$results/up.log" 2>&1; }

# Some tests fill the file system: the quota keeps them off the rest of the disk. Others are about
# access times.
timeout 120 "$rialto" up --dir "$cell" --at "$work/test" --listen 127.0.0.1:0 \
    --trust 127.0.0.0/8 --trust-root > "$results/up.log" 2>&1 &&
    vos create scratch &&
    vos setfields root.cell -maxquota 8G -readtimes on &&
    vos setfields scratch -maxquota 8G -readtimes on &&
    timeout 60 "$rialto" umount --dir "$cell" "$work/test" >> "$results/up.log" 2>&1 ||
    { cat "$results/up.log" >&2; cannot "the cell did not start"; }

if [ "$mounts" = 2 ]; then
    address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$cell/cell.toml")
    for volume in root.cell scratch; do
        place=$work/second-${volume/root.cell/test}
        # Its reads are none of the tests' programs.
        timeout 60 "$rialto" mount --daemon --dir "$cell" --volume "$volume" -o noatime \
            "$address" "$place" >> "$results/up.log" 2>&1 ||
            { cat "$results/up.log" >&2; cannot "no second mount"; }
    done
    # Errors are to be expected: what is listed may be gone before it is read.
    (cd / && while sleep 0.2; do
        timeout 20 find "$work/second-test" "$work/second-scratch" -xdev -maxdepth 4 \
            \( -type d -o -type f -size -1M -exec head -c 65536 {} \; \) | head -c 100000000
    done) > /dev/null 2>&1 &
    reader_pid=$!
fi

cat > "$work/local.config" <<CONFIG
export TEST_DEV=unix:$work/test.sock
export TEST_DIR=$work/test
export SCRATCH_DEV=unix:$work/scratch.sock
export SCRATCH_MNT=$work/scratch
export FSTYP=fuse
export FUSE_SUBTYP=.rialto
CONFIG
# The table of mounts has the whole type, fuse.rialto; xfstests must take it for fuse.
tree=$work/xfstests
cp -rs "$xfstests" "$tree" && rm "$tree/common/rc" &&
    sed "s/-e 's\/fuse.glusterfs\/glusterfs\/'/-e 's\/fuse.rialto\/fuse\/' &/" \
        "$xfstests/common/rc" > "$tree/common/rc" || cannot "no copy of $xfstests"

sed -n 's/^\(generic\/[0-9]*\).*/\1/p' "$here/excluded" > "$work/expunged"
args=()
if [ ${#tests[@]} -gt 0 ]; then
    args+=("${tests[@]}")
else
    args+=(-E "$work/expunged" -g "${group:-auto}")
fi

export HOST_OPTIONS=$work/local.config RESULT_BASE=$results PATH=$work/bin:$PATH
cd "$tree" || exit 2
setsid ./check -fuse "${args[@]}" > "$results/check.log" 2>&1 &
check_pid=$!
tail -n +1 -f --pid=$check_pid "$results/check.log" &

# Ends what takes too long: the test is check's child.
while kill -0 $check_pid 2> /dev/null; do
    ps -o pid=,etimes=,args= --ppid $check_pid | while read -r pid age command; do
        case $command in *tests/generic/*) ;; *) continue ;; esac
        # ps tells a wild age of a process that has just begun.
        [ "$age" -gt "$seconds" ] && [ "$age" -lt 100000 ] || continue
        echo " [killed after $age s] "
        kill_tree "$pid"
    done
    sleep 2
done
wait $check_pid
status=$?
check_pid=''
if grep -l 'panicked at' "$cell"/logs/*.log; then
    echo "a daemon panicked"
    status=1
fi
if grep -l 'DE-5' "$cell"/logs/*.log; then
    echo "a client answered otherwise than the server"
    status=1
fi
[ $status -eq 0 ] || exit 1
