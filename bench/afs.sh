#!/bin/bash
# afs.sh [--bin DIR] [--rounds N] [--mib N] [--delay-ms D] [--loss P] [--far-mib N] [--only PART]:
# Rialto's file server against OpenAFS's, for AFS's own clients.
#
#   --bin       where rialto and examples/ were built [default: target/release]
#   --rounds    how often each is measured [default: 5]
#   --mib       size of the near file [default: 1024]
#   --delay-ms  of the long link, one way; the round trip is twice that [default: 10]
#   --loss      share of packets that the long link loses, each way [default: 0.001]
#   --far-mib   size of the far file [default: 32]
#   --only      near or far [default: both]
#
# Near: afsd.fuse, OpenAFS 1.8's client as a FUSE program, writes a file into a volume of each
# server, and another afsd.fuse, which has nothing of it, reads it; by turns, over loopback. Server
# CPU is what the server's process used meanwhile, for each GiB. Far: examples/afs_stream, a client
# with a large window, stores and fetches a file in one call each, over a link that examples/link
# emulates. Prints the medians of the rounds, and their ratio: Rialto to OpenAFS.
# Needs root, TUN, ip, unshare, and OpenAFS's packages, which are unpacked and not installed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release rounds=5 mib=1024 delay=10 loss=0.001 far=32
only=both words=("$@")
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2 ;; --rounds) rounds=$2 ;; --mib) mib=$2 ;; --delay-ms) delay=$2 ;; \
            --loss) loss=$2 ;; --far-mib) far=$2 ;; --only) only=$2 ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift 2
done
bin=$(cd "$bin" && pwd) || exit 2
[ "$(id -u)" = 0 ] && [ -w /dev/fuse ] && [ -w /dev/net/tun ] ||
    { echo "not run: root, /dev/fuse and /dev/net/tun are needed"; exit 0; }
PART=afs-bench CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests QUICK=no
RIALTO=$bin/rialto WORK=${WORK:-$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-afs.XXXXXX")}
export WORK
. "$here/../tests/lib/real.sh"
. "$here/../tests/lib/openafs.sh"
get_openafs || { echo "not run: OpenAFS's packages cannot be downloaded"; exit 0; }
if [ -z "${PRIVATE_NET:-}" ]; then
    PRIVATE_NET=yes exec unshare --net --mount --propagation private "$0" "${words[@]}"
fi
cell=$WORK/cell ours=10.78.0.1 theirs=10.78.0.2 name=afs$$ link=''
afsd=()
cleanup() {
    local pid
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$WORK"/*.tree 2> /dev/null
    [ -z "$link" ] || { exec 9>&-; wait "$link" 2> /dev/null; }
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    stop_openafs_servers "$WORK/openafs"
    rm -rf --one-file-system "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
rialto() { within 60 "$RIALTO" "$@" --dir "$cell"; }
there() { openafs_there "$WORK/openafs" "$@"; }
fail_with() { echo "afs.sh: $1"; exit 1; }

# Both servers, with one key; at the end of the link, if there is one.
mkdir -p "$WORK"/{etc,openafs}
ip link set lo up
for address in $ours $theirs; do ip address add $address/32 dev lo; done
mkdir -p /etc/openafs && mount --bind "$WORK/etc" /etc/openafs
configure_openafs x.org $theirs
keytab=/etc/openafs/server/rxkad.keytab
printf 'addent -password -p afs/x.org@X.ORG -k 1 -e aes256-cts-hmac-sha1-96\nsecret\nwkt %s\nq\n' \
    $keytab | ktutil > /dev/null
openafs asetkey add rxkad_krb5 1 18 $keytab afs/x.org@X.ORG > /dev/null
start_openafs_servers "$WORK/openafs" x.org $theirs || fail_with "OpenAFS's servers do not start"
rialto up --no-mount --join-afs x.org --afs-databases $theirs --keytab $keytab \
    --listen $ours:7620 > "$WORK/up.log" 2>&1 || fail_with "$(cat "$WORK/up.log")"
until there vos listaddrs -noresolve 2> /dev/null | grep -q $ours; do sleep 0.2; done
# A new volume's list lets administrators in alone: a dump brings one for everyone.
open_volumes() {
    there vos create $ours a start -maxquota 0 &&
        mkdir "$WORK/start.tree" &&
        within 60 "$RIALTO" mount --daemon --dir "$cell" --volume start "unix:$cell/server.sock" \
            "$WORK/start.tree" &&
        within 30 "$RIALTO" fs setacl "$WORK/start.tree" system:anyuser rlidwk &&
        within 60 "$RIALTO" umount --dir "$cell" "$WORK/start.tree" &&
        there vos dump start -file "$WORK/start.dump" &&
        there vos restore $ours a rialto -file "$WORK/start.dump" &&
        there vos restore $theirs z openafs -file "$WORK/start.dump" &&
        there vos setfields rialto -maxquota 0 && there vos setfields openafs -maxquota 0
}
open_volumes > "$WORK/volumes.log" 2>&1 || fail_with "$(tail -n 5 "$WORK/volumes.log")"
number() { there vos examine "$1" | sed -n 's/^    RWrite: *\([0-9]*\).*/\1/p'; }
median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'; }

near() {
    local side round file took cpu pids
    for side in rialto openafs; do
        for role in writer reader; do
            mount_openafs "$WORK/openafs/etc" "$WORK/$side.$role" "$WORK/$side.$role.tree" $side
            mountpoint -q "$WORK/$side.$role.tree" || fail_with "afsd.fuse does not mount"
        done
    done
    # Processor ticks of a side's server so far.
    ticks() {
        if [ "$1" = rialto ]; then pids=$(head -n 1 "$cell/server.pid"); else
            pids=$(pgrep -f "^$OPENAFS/usr/lib/openafs/fileserver "); fi
        awk '{ print $14 + $15 }' "/proc/$pids/stat"
    }
    # last_packets NANOSECONDS: when more than some packets came last, that time at least.
    last_packets() {
        local last=$1 seen=0 now
        while [ $(($(date +%s%N) - last)) -lt 500000000 ]; do
            now=$(cat /sys/class/net/lo/statistics/rx_bytes)
            [ $((now - seen)) -lt 50000 ] || last=$(date +%s%N)
            seen=$now
            sleep 0.01
        done
        echo "$last"
    }
    # In a virtual machine the first use of a page costs an exit to the host, 2 s and more for each
    # GiB, and whichever server is given such pages pays. So all free memory is used once before.
    use_memory() {
        head -c "$(awk '/^MemFree/ { print $2 }' /proc/meminfo)K" /dev/zero \
            > /dev/shm/rialto-afs-$$ 2> /dev/null
        rm -f /dev/shm/rialto-afs-$$
    }
    timed() { # SIDE WHAT COMMAND...: a line "SIDE WHAT MIB/S CPU-SECONDS/GIB"
        local side=$1 what=$2 before after start end
        shift 2
        before=$(ticks "$side") start=$(date +%s%N)
        within 600 "$@" || fail_with "$* failed"
        # It stores a file after the kernel's last word about it, so its end is that of the packets.
        end=$(date +%s%N)
        end=$(last_packets "$end") after=$(ticks "$side")
        awk -v side="$side" -v what="$what" -v mib="$mib" -v t=$((end - start)) \
            -v cpu=$((after - before)) 'BEGIN { printf "%s %s %.1f %.2f\n", side, what,
                mib / (t / 1e9), cpu / 100 / (mib / 1024) }' >> "$WORK/near"
    }
    head -c $((mib << 20)) /dev/urandom > "$WORK/source"
    for round in $(seq 0 "$rounds"); do
        for side in $([ $((round % 2)) = 0 ] && echo rialto openafs || echo openafs rialto); do
            use_memory
            timed $side write dd if="$WORK/source" of="$WORK/$side.writer.tree/file" bs=1M \
                status=none
            timed $side read dd if="$WORK/$side.reader.tree/file" of=/dev/null bs=1M status=none
            cmp "$WORK/source" "$WORK/$side.reader.tree/file" || fail_with "another file came"
            rm "$WORK/$side.writer.tree/file"
        done
        # The first round warms up.
        [ "$round" -gt 0 ] || : > "$WORK/near"
    done
    echo "| test ($mib MiB) | Rialto | OpenAFS | ratio |"
    echo "| --- | ---: | ---: | ---: |"
    local what column unit one other
    for column in 3 4; do
        for what in write read; do
            one=$(awk -v w=$what -v c=$column '$1 == "rialto" && $2 == w { print $c }' \
                "$WORK/near" | median)
            other=$(awk -v w=$what -v c=$column '$1 == "openafs" && $2 == w { print $c }' \
                "$WORK/near" | median)
            unit=$([ $column = 3 ] && echo "MiB/s" || echo "server CPU, s/GiB")
            awk -v what="$what, $unit" -v a="$one" -v b="$other" \
                'BEGIN { printf "| %s | %.1f | %.1f | %.2f |\n", what, a, b, a / b }'
        done
    done
}

far() {
    local side round result volume address
    mkfifo "$WORK/link.end"
    "$bin/examples/link" --name $name --delay-ms "$delay" --rate 125 --loss "$loss" \
        < "$WORK/link.end" > "$WORK/link.log" &
    link=$!
    exec 9> "$WORK/link.end"
    for _ in $(seq 100); do [ -s "$WORK/link.log" ] && break; sleep 0.05; done
    [ -s "$WORK/link.log" ] || fail_with "the link does not come up"
    # One end of the link comes here, where the servers are.
    ip netns exec $name-a ip -brief link | awk '/^rla/ { print $1 }' | cut -d@ -f1 > "$WORK/end"
    ip -n $name-a link set "$(cat "$WORK/end")" netns $$
    ip address add 10.77.0.1/30 dev "$(cat "$WORK/end")"
    ip link set "$(cat "$WORK/end")" up
    ip -n $name-b route add 10.78.0.0/24 via 10.77.0.1
    for round in $(seq 0 "$rounds"); do
        for side in $([ $((round % 2)) = 0 ] && echo rialto openafs || echo openafs rialto); do
            [ $side = rialto ] && address=$ours || address=$theirs
            result=$(ip netns exec $name-b timeout 600 "$bin/examples/afs_stream" $address \
                "$(number $side)" $((far << 20))) || fail_with "afs_stream to $side: $result"
            [ "$round" = 0 ] || echo "$side $result" >> "$WORK/far"
        done
    done
    echo "| test ($far MiB, ${delay} ms one way, $loss lost) | Rialto | OpenAFS | ratio |"
    echo "| --- | ---: | ---: | ---: |"
    local what column one other
    for what in store:3 fetch:5; do
        column=${what#*:}
        one=$(awk -v c="$column" '$1 == "rialto" { print $c }' "$WORK/far" | median)
        other=$(awk -v c="$column" '$1 == "openafs" { print $c }' "$WORK/far" | median)
        awk -v what="${what%:*}, MB/s" -v a="$one" -v b="$other" \
            'BEGIN { printf "| %s | %.2f | %.2f | %.1f |\n", what, a, b, a / b }'
    done
}

[ "$only" = far ] || near
[ "$only" = near ] || far
