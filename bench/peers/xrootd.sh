#!/bin/bash
# XRootD: one server and its FUSE client, in a network of their own.
. "$(dirname "$0")/lib.sh"
packages=(xrootd-server xrootd-client xrootd-fuse xrootd-server-plugins)
programs=(xrootd xrdfs xrootdfs ip nsenter)
network=rialto-xrootd address=10.63.0.1

serve() {
    network $network $address
    mkdir -p "$dir/files/data" "$dir/admin"
    chmod 755 "$dir"
    chown -R xrootd "$dir/files" "$dir/admin" "$dir/log"
    cat >"$dir/server.conf" <<CONFIG
all.export /data
oss.localroot $dir/files
all.adminpath $dir/admin
all.pidpath $dir/admin
xrd.port 1094
xrootd.async off
CONFIG
    background server xrootd nsenter --net=/run/netns/$network xrootd -R xrootd \
        -c "$dir/server.conf"
    patiently 20 within $network xrdfs $address ls /data
}

attach() {
    background client xrootdfs nsenter --net=/run/netns/$network xrootdfs -f "$mount" \
        -o "rdr=root://$address:1094//data,allow_other,uid=xrootd"
    patiently 20 answers
}

purge() { [ ! -e /run/netns/$network ] || ip netns del $network; }

peer "$@"
