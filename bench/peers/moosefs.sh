#!/bin/bash
# MooseFS: a master, one chunk server (one copy of everything) and the FUSE client, in a network of
# their own.
. "$(dirname "$0")/lib.sh"
packages=(moosefs-master moosefs-chunkserver moosefs-client)
programs=(mfsmaster mfschunkserver mfsmount ip nsenter)
network=rialto-moosefs address=10.62.0.1

listens() { within $network bash -c "</dev/tcp/$address/$1"; }

serve() {
    network $network $address
    local user
    user=$(id -un mfs 2>/dev/null || echo root)
    mkdir -p "$dir/meta" "$dir/chunks" "$dir/chunkserver"
    ls "$dir/meta"/metadata.mfs* >/dev/null 2>&1 ||
        cp /var/lib/mfs/metadata.mfs.empty "$dir/meta/metadata.mfs"
    echo '* / rw,alldirs,admin,maproot=0:0' >"$dir/exports.cfg"
    : >"$dir/topology.cfg"
    cat >"$dir/master.cfg" <<CONFIG
WORKING_USER = $user
WORKING_GROUP = $user
DATA_PATH = $dir/meta
EXPORTS_FILENAME = $dir/exports.cfg
TOPOLOGY_FILENAME = $dir/topology.cfg
MATOML_LISTEN_HOST = $address
MATOCS_LISTEN_HOST = $address
MATOCL_LISTEN_HOST = $address
CONFIG
    cat >"$dir/chunkserver.cfg" <<CONFIG
WORKING_USER = $user
WORKING_GROUP = $user
DATA_PATH = $dir/chunkserver
HDD_CONF_FILENAME = $dir/disks.cfg
HDD_FSYNC_BEFORE_CLOSE = 1
HDD_LEAVE_SPACE_DEFAULT = 256MiB
MASTER_HOST = $address
CSSERV_LISTEN_HOST = $address
CONFIG
    echo "$dir/chunks" >"$dir/disks.cfg"
    chmod 755 "$dir"
    chown -R "$user" "$dir/meta" "$dir/chunks" "$dir/chunkserver"
    background server master nsenter --net=/run/netns/$network mfsmaster -f \
        -c "$dir/master.cfg" start
    patiently 20 listens 9421
    background server chunkserver nsenter --net=/run/netns/$network mfschunkserver -f \
        -c "$dir/chunkserver.cfg" start
    patiently 20 listens 9422
}

attach() {
    background client mfsmount nsenter --net=/run/netns/$network mfsmount -f "$mount" -H $address
    patiently 20 answers
    # Until the chunk server has told the master of itself, nothing can be written.
    patiently 30 writes
}
writes() { echo x >"$mount/.probe" && rm "$mount/.probe"; }

purge() { [ ! -e /run/netns/$network ] || ip netns del $network; }

peer "$@"
