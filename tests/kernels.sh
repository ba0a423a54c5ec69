#!/bin/bash
# kernels.sh [--bin DIR] [CLIENT...]: the kernel's clients of AFS work on a cell of Rialto, beside a
# native mount that watches: kafs of Linux, OpenAFS's module, and OpenAFS's client as a FUSE program
# (`fuse`) with which they are compared. Default: all. --bin: where rialto was built [default:
# target/release]. --quick: of the source tree only a part is built.
#
# The kernel's clients run in an emulated machine (tests/lib/guest.sh); everything is in a network
# of its own, with a key distribution center. Root only. Prints PASS, FAIL and SKIP lines; the exit
# code is 1 if any failed. The emulated compiler takes most of the time.
set -uo pipefail
PART=kernels
here=$(cd "$(dirname "$0")" && pwd)
BIN=${CARGO_TARGET_DIR:-$here/../target}/release QUICK=no
clients=()
while [ $# -gt 0 ]; do
    case $1 in
        --bin) BIN=$2; shift ;;
        --quick) QUICK=yes ;;
        kafs | openafs | fuse) clients+=("$1") ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ ${#clients[@]} -gt 0 ] || clients=(kafs openafs fuse)
BIN=$(cd "$BIN" && pwd) || exit 2
export PATH=$PATH:/usr/sbin:/sbin RIALTO=$BIN/rialto QUICK
export CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests
export WORK=${WORK:-$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-kernels.XXXXXX")}
export RIALTO_RUN=$WORK/run
mkdir -p "$CACHE"
for library in real openafs guest fetch; do . "$here/lib/$library.sh"; done
needs_root
for tool in qemu-system-x86_64 busybox cpio flex bison ktutil krb5kdc kadmin.local keyctl; do
    command -v $tool > /dev/null ||
        { fail "$tool is there: 'scripts/setup.sh soak' gets it"; finish; }; done
if [ -z "${PRIVATE_NET:-}" ]; then
    trap 'rm -rf "$WORK"' EXIT
    get_openafs || { skip "OpenAFS's packages cannot be downloaded"; finish; }
    get_guest > "$WORK/guest.log" 2>&1
    got=$?
    [ $got -ne 2 ] || { skip "Debian's kernel cannot be downloaded"; finish; }
    check "Debian's kernel, with OpenAFS's module" [ $got -eq 0 ] ||
        { tail -n 20 "$WORK/guest.log"; finish; }
    # There is no way out of the network below.
    fetch_source musl > "$WORK/fetch.log" 2>&1
    PRIVATE_NET=yes exec unshare --net --mount --propagation private "$0" --bin "$BIN" \
        $([ $QUICK = no ] || echo --quick) "${clients[@]}"
fi
GUEST=$CACHE/guest OPENAFS=$CACHE/openafs
base=$WORK/kernels cell=$WORK/kernels/cell address=10.94.0.1 name=x.org
native=$base/native
afsd=() kdc=
cleanup() {
    local pid
    trap - EXIT
    stop_guest
    for pid in "${afsd[@]}"; do kill -9 "$pid" 2> /dev/null; done
    umount --lazy "$base/fuse" 2> /dev/null
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$native" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    [ -z "$kdc" ] || { kill "$kdc"; wait "$kdc"; } 2> /dev/null
    if [ "$failures" -gt 0 ]; then
        echo "the logs are kept in $WORK"
        rm -rf "$cell"/vicep* "$cell/cache"
    else
        rm -rf --one-file-system "$WORK"
    fi
}
trap cleanup EXIT
trap 'failures=1; exit 130' INT TERM
rialto() { within 90 "$RIALTO" "$@" --dir "$cell"; }
native_fs() { within 30 "$RIALTO" fs "$@"; }
# A cell whose name is its realm's, users with passwords, and the cell's key.
make_realm() {
    cat > "$base/krb5.conf" << CONF
[libdefaults]
default_realm = X.ORG
dns_lookup_kdc = false
dns_lookup_realm = false
rdns = false
[realms]
X.ORG = {
kdc = $address:88
}
[domain_realm]
.$name = X.ORG
$name = X.ORG
CONF
    cat > "$base/kdc.conf" << CONF
[realms]
X.ORG = {
kdc_listen = $address:88
kdc_tcp_listen = $address:88
database_name = $base/principal
key_stash_file = $base/stash
acl_file = $base/acl
}
CONF
    export KRB5_CONFIG=$base/krb5.conf KRB5_KDC_PROFILE=$base/kdc.conf
    local user
    kdb5_util create -r X.ORG -s -P master || return 1
    for user in joe ann admin; do
        kadmin.local -r X.ORG -q "addprinc -pw opensesame $user" || return 1; done
    kadmin.local -r X.ORG -q "addprinc -e aes256-cts-hmac-sha1-96:normal -randkey afs/$name" &&
        kadmin.local -r X.ORG -q "ktadd -k $cell/afs.keytab -norandkey afs/$name"
}
make_cell() {
    rialto up --no-mount --cell $name --listen $address:7620 && rialto down || return 1
    make_realm || return 1
    krb5kdc -n -r X.ORG -P "$base/kdc.pid" > "$base/kdc.log" 2>&1 &
    kdc=$!
    sed -i 's|^partition = .*|server = "host1"\npartitions = ["vicepa", "vicepb"]|' \
        "$cell/cell.toml"
    mv "$cell/vicep" "$cell/vicepa" && sed -i 's/vicep/vicepa/' "$cell/partitions.made"
    printf '\n[afs]\nlisten = "%s"\nkeys = "afs.keytab"\n' $address >> "$cell/cell.toml"
    rialto server --daemon --new-partition vicepb || return 1
    # Its users, of whom an administrator is one.
    rialto pts createuser joe -uid 4711 && rialto pts createuser ann -uid 4712 &&
        rialto pts createuser admin -uid 4713 && rialto pts adduser admin system:administrators
}
mount_native() {
    within 60 "$RIALTO" mount --daemon --dir "$cell" "unix:$cell/server.sock" "$native"
}
mkdir -p "$native" "$base"/{etc,guest,fuse}
network() {
    ip link set lo up && ip tuntap add afs0 mode tap && ip address add $address/24 dev afs0 &&
        ip link set afs0 up
}
check "a network" network || finish
mkdir -p /etc/openafs && mount --bind "$base/etc" /etc/openafs
configure_openafs $name $address
check "a cell with a realm" make_cell || finish
check "a native mount" mount_native || finish
check "its volume has access lists" rialto vos setfields root.cell -model acl
check "which let everyone look" native_fs setacl "$native" system:anyuser rl

# The client at hand: `top` is the cell's tree there; `at` runs a command in its machine.
begin_kafs() {
    top=/afs
    start_guest "$base/guest" afs0 && cp "$base/krb5.conf" "$base/guest/shared/" &&
        guest_kafs $name $address
}
begin_openafs() {
    top=/afs/$name
    start_guest "$base/guest" afs0 && cp "$base/krb5.conf" "$base/guest/shared/" &&
        guest_openafs $name $address
}
# It gets no token, so everyone may write there.
begin_fuse() {
    native_fs setacl "$here_at" system:anyuser rlidwk
    top=$base/fuse
    mount_openafs /etc/openafs "$base/fuse.client" "$base/fuse" root.cell
}
at() { # at SECONDS COMMAND
    case $client in
        fuse) within "$1" bash -c "$2" ;;
        *) guest "$1" "$2" ;;
    esac
}
# The kernel keeps names and sizes of the FUSE program for a second, and stores a file when it is
# released, which is after the close. The kernel's own clients see a change at once.
next_look() { [ "$client" != fuse ] || sleep 1.1; }
for part in "$here"/kernels/*.sh; do . "$part"; done
for client in "${clients[@]}"; do
    PART=kernels-$client
    work=work.$client
    check "a volume" rialto vos create host1 vicepa "$work" -model acl -maxquota 2G &&
        check "which is mounted" native_fs mkmount "$native/$client" "$work" &&
        check "and lets joe write" native_fs setacl "$native/$client" joe rlidwka
    here_at=$native/$client
    check "a machine with the client" "begin_$client" || { stop_guest; continue; }
    there=$top/$client
    [ "$client" = fuse ] || users
    contents_and_names
    volumes
    tree
    case $client in
        fuse) umount --lazy "$base/fuse" ;;
        *)
            guest 20 "dmesg" > "$WORK/dmesg.$client" 2>&1
            check "the kernel had no fault" refused grep -E "BUG:|Oops|WARNING:|AFS_Invalid" \
                "$WORK/dmesg.$client"
            stop_guest ;;
    esac
done
PART=kernels
check "the server stops" rialto down --lazy
finish
