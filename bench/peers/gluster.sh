#!/bin/bash
# GlusterFS: one volume of one brick, and its FUSE client, in a network of their own.
. "$(dirname "$0")/lib.sh"
packages=(glusterfs-server glusterfs-client)
programs=(glusterd gluster glusterfs ip nsenter)
network=rialto-gluster address=10.61.0.1

ask() { within $network gluster --mode=script "$@"; }
started() { ask volume info bench | grep -q 'Status: Started'; }

serve() {
    network $network $address
    mkdir -p "$dir/state" "$dir/brick" /var/run/gluster /var/log/glusterfs
    cat >"$dir/glusterd.vol" <<CONFIG
volume management
    type mgmt/glusterd
    option working-directory $dir/state
    option transport-type socket
    option transport.socket.read-fail-log off
    option ping-timeout 0
end-volume
CONFIG
    background server glusterd nsenter --net=/run/netns/$network glusterd -N \
        -f "$dir/glusterd.vol" \
        -l "$dir/log/glusterd.log" -p "$dir/glusterd.pid"
    patiently 30 ask volume list
    ask volume list | grep -qx bench || ask volume create bench "$address:$dir/brick" force
    started || ask volume start bench
    patiently 30 started
    patiently 30 brick
    remember server "$(cat /var/run/gluster/vols/bench/*.pid)"
}

# The brick's own process, which glusterd starts in its own time.
brick() { local pid; pid=$(cat /var/run/gluster/vols/bench/*.pid) && [ -e "/proc/$pid" ]; }

attach() {
    background client glusterfs nsenter --net=/run/netns/$network glusterfs -N \
        --volfile-server=$address \
        --volfile-id=bench -l "$dir/log/client.log" "$mount"
    patiently 30 answers
}

purge() {
    rm -rf /var/run/gluster/vols/bench
    [ ! -e /run/netns/$network ] || ip netns del $network
}

peer "$@"
