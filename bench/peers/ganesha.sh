#!/bin/bash
# NFS-Ganesha over a directory. It can be mounted only where the kernel has an NFS client, or where
# a FUSE client on libnfs (fuse-nfs, which Debian does not have) is installed; `check` says so
# otherwise. `bench/peers/ganesha.sh transfer DIR BYTES` measures what can be measured without a
# mount: one file through libnfs's own tools.
. "$(dirname "$0")/lib.sh"
packages=(nfs-ganesha nfs-ganesha-vfs libnfs-utils rpcbind)
programs=(ganesha.nfsd rpcbind nfs-ls nfs-cp ip nsenter)
network=rialto-ganesha address=10.65.0.1
# libnfs writes over version 3 alone, which names an export by its directory.
url() { echo "nfs://$address$dir/export"; }

serve() {
    network $network $address
    mkdir -p "$dir/export" "$dir/recovery" /run/ganesha /run/rpcbind
    chmod 777 "$dir/export"
    cat >"$dir/ganesha.conf" <<CONFIG
NFS_CORE_PARAM {
    Protocols = 3, 4; Bind_addr = $address; MNT_Port = 20048;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false;
}
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = "$dir/recovery"; }
EXPORT {
    Export_Id = 1; Path = $dir/export; Pseudo = /bench; Access_Type = RW; Squash = None;
    SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; }
}
LOG { Default_Log_Level = WARN; }
CONFIG
    background server rpcbind nsenter --net=/run/netns/$network rpcbind -f -i
    patiently 10 within $network bash -c "</dev/tcp/127.0.0.1/111"
    background server ganesha nsenter --net=/run/netns/$network ganesha.nfsd -F \
        -f "$dir/ganesha.conf" \
        -L "$dir/log/ganesha.log" -p "$dir/ganesha.pid"
    patiently 30 within $network nfs-ls "$(url)"
}

attach() {
    if grep -qw nfs4 /proc/filesystems; then
        within $network mount -t nfs4 -o vers=4.2 "$address:/bench" "$mount"
    elif command -v fuse-nfs >/dev/null; then
        background client fuse-nfs nsenter --net=/run/netns/$network fuse-nfs -f -n "$(url)" \
            -m "$mount"
        patiently 20 answers
    else
        fail "this kernel has no NFS client and fuse-nfs is not installed;" \
            "'$name.sh transfer DIR BYTES' works without a mount"
    fi
}
mounted() { grep -q " $mount " /proc/self/mounts; }

# One file there and back, MB/s.
transfer() {
    dir=$1 mount=$1/mnt
    local bytes=$2
    check
    mkdir -p "$dir/log"
    touch "$dir/pids"
    trap 'end server; purge' EXIT
    serve >&2
    head -c "$bytes" /dev/urandom >"$dir/file"
    sync
    rate() {
        local start=$EPOCHREALTIME
        "${@:2}" >&2
        awk -v what="$1" -v bytes="$bytes" -v start="$start" -v stop="$EPOCHREALTIME" \
            'BEGIN { printf "%s %.0f MB/s\n", what, bytes / 1e6 / (stop - start) }'
    }
    rate write within $network nfs-cp "$dir/file" "$(url)/file"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    rate read within $network nfs-cp "$(url)/file" "$dir/back"
    cmp "$dir/file" "$dir/back"
}

purge() { [ ! -e /run/netns/$network ] || ip netns del $network; }

if [ "${1:-}" = transfer ]; then shift; transfer "$@"; else peer "$@"; fi
