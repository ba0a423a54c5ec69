# Members of etcd with TLS for tests, on loopback. Sourced; the caller has WORK, and calls
# `end_members` when it ends.
#
# members DIR [NAMES ADDRESS ADDRESS ADDRESS]
#                       makes certificates and the addresses of three members in DIR; none runs yet.
#                       With addresses they have the ports of etcd there, and NAMES, as a
#                       certificate has them (DNS:db1,DNS:db2); otherwise free ports
# member NUMBER         starts one of them (0, 1, 2)
# lose NUMBER           kills one
# to_etcd, up_etcd, endpoints   what `rialto cell migrate` and `rialto up` need to reach them

member_pids=(0 0 0) member_hosts=() member_clients=() member_peers=() member_dir=
members() {
    local dir=$1 names=${2:-DNS:localhost} ports
    member_hosts=(127.0.0.1 127.0.0.1 127.0.0.1)
    [ $# -eq 1 ] || member_hosts=("${@:3}")
    member_dir=$dir
    mkdir -p "$dir/pki"
    # An authority of etcd, and one certificate for members and servers.
    (cd "$dir/pki" &&
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 \
            -subj /CN=etcd-authority -keyout ca.key -out ca.pem &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=rialto \
            -keyout one.key -out one.csr &&
        printf '%s\n' "subjectAltName=IP:127.0.0.1$(printf ',IP:%s' "${member_hosts[@]}"),$names" \
            'extendedKeyUsage=serverAuth,clientAuth' > ext &&
        openssl x509 -req -in one.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 \
            -extfile ext -out one.pem) > "$dir/pki.log" 2>&1 || { cat "$dir/pki.log"; return 1; }
    mapfile -t ports < <(python3 -c '
import socket
all = [socket.socket() for _ in range(6)]
for one in all: one.bind(("127.0.0.1", 0))
for one in all: print(one.getsockname()[1])')
    [ $# -eq 1 ] || ports=(2379 2379 2379 2380 2380 2380)
    member_clients=() member_peers=()
    local one
    for one in 0 1 2; do
        member_clients+=("${member_hosts[one]}:${ports[one]}")
        member_peers+=("${member_hosts[one]}:${ports[one + 3]}")
    done
    endpoints=${member_clients[0]},${member_clients[1]},${member_clients[2]}
    to_etcd=(--to etcd --endpoints "$endpoints" --cacert "$dir/pki/ca.pem"
        --cert "$dir/pki/one.pem" --key "$dir/pki/one.key")
    up_etcd=(--etcd "$endpoints" --etcd-cacert "$dir/pki/ca.pem"
        --etcd-cert "$dir/pki/one.pem" --etcd-key "$dir/pki/one.key")
}
member() {
    local client=https://${member_clients[$1]} peer=https://${member_peers[$1]}
    local pki=$member_dir/pki cluster="m0=https://${member_peers[0]}"
    cluster="$cluster,m1=https://${member_peers[1]},m2=https://${member_peers[2]}"
    etcd --name "m$1" --data-dir "$member_dir/m$1" --logger zap \
        --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --initial-cluster "$cluster" --heartbeat-interval 50 --election-timeout 500 \
        --client-cert-auth --trusted-ca-file "$pki/ca.pem" --cert-file "$pki/one.pem" \
        --key-file "$pki/one.key" --peer-client-cert-auth --peer-trusted-ca-file "$pki/ca.pem" \
        --peer-cert-file "$pki/one.pem" --peer-key-file "$pki/one.key" \
        >> "$member_dir/m$1.log" 2>&1 &
    member_pids[$1]=$!
}
lose() {
    kill -9 "${member_pids[$1]}"
    wait "${member_pids[$1]}" 2> /dev/null
    member_pids[$1]=0
}
end_members() {
    local pid
    for pid in "${member_pids[@]}"; do
        [ "$pid" = 0 ] || { kill -9 "$pid" && wait "$pid"; } 2> /dev/null
    done
}
