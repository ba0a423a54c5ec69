#!/bin/bash
# containers.sh [BIN]: the images of the program in the directory BIN (default target/release) are
# built on a Debian that has nothing else, from this machine's mirror, and the compose file makes a
# cell of them: three servers, and three members of etcd. A server and a member are killed and
# return; a client mounts the tree; all of it is made anew from its volumes.
# Root only. Everything is in a storage of its own, which goes when the test ends. Prints PASS,
# FAIL and SKIP lines; the exit code is 1 if any failed.
set -uo pipefail
PART=containers
here=$(cd "$(dirname "$0")" && pwd)
BIN=$(cd "${1:-${CARGO_TARGET_DIR:-$here/../target}/release}" && pwd) || exit 2
RIALTO=$BIN/rialto
WORK=$(mktemp -d "${TMPDIR:-/var/tmp}/rialto-containers.XXXXXX")
. "$here/lib/real.sh"
needs_root
for tool in podman podman-compose runc mmdebstrap dh; do
    command -v $tool > /dev/null ||
        { fail "$tool is there: 'scripts/setup.sh soak' gets it"; finish; }; done

compose() {
    within 300 podman-compose -p rialto -f "$here/../packaging/container/compose.yaml" "$@"
}
end() {
    compose down -v > "$WORK/down.log" 2>&1
    podman rm --all --force > /dev/null 2>&1
    podman network rm rialto_default > /dev/null 2>&1
    podman system reset --force > /dev/null 2>&1
    rm -rf "$WORK"
}
trap end EXIT
cat > "$WORK/storage.conf" << END
[storage]
driver = "overlay"
graphroot = "$WORK/storage"
runroot = "$WORK/run"
END
# runc, and limits that a machine without all privileges may set.
cat > "$WORK/containers.conf" << END
[containers]
default_ulimits = ["nofile=$(ulimit -H -n):$(ulimit -H -n)", "nproc=4096:4096"]
[engine]
runtime = "runc"
END
export CONTAINERS_STORAGE_CONF=$WORK/storage.conf CONTAINERS_CONF=$WORK/containers.conf
soon() { local until=$((SECONDS + 120))
    until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $until ] || { "$@"; return 1; }; sleep 1; done; }
# in_server NUMBER COMMAND...: as the server's user, in its container.
in_server() { local number=$1; shift; within 90 podman exec "rialto_fs${number}_1" "$@"; }
fs1() { in_server 1 rialto "$@"; }
fs2() { in_server 2 rialto "$@"; }

debian() {
    TMPDIR=$WORK mmdebstrap --quiet --mode=root --variant=apt \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$WORK/debian.tar" &&
        podman import --quiet "$WORK/debian.tar" localhost/debian:latest && rm "$WORK/debian.tar"
}
check "a Debian without anything else" debian || finish
packed() { RIALTO=$RIALTO DEB_BUILD_OPTIONS=noautodbgsym "$here/../scripts/deb.sh" "$WORK/debs"; }
check "packages" packed || finish
images() { DEBS=$WORK/debs BASE=localhost/debian:latest NETWORK=host "$here/../scripts/images.sh"; }
check "the images are built" images || finish
check "the client's has the program" says "$("$RIALTO" --version)" 0 podman run --rm \
    --network none localhost/rialto-client:latest --version
check "no process of the server's is root" says rialto 0 podman run --rm --network none \
    --entrypoint whoami localhost/rialto-server:latest
check "without a name of a cell it says why" says RIALTO_CELL 2 podman run --rm --network none \
    localhost/rialto-server:latest

check "everything starts" compose up -d || finish
listed() { [ "$(fs1 vos listaddrs | grep -c 'fs[123]')" -ge 3 ]; }
check "three servers are one cell" soon listed ||
    for one in fs1 fs2 fs3 etcd1; do podman logs "rialto_${one}_1" 2>&1 | tail -n 15; done
check "whose database is in etcd" says "in etcd" 0 fs1 status
check "a user" soon fs2 pts createuser joe -uid 4711
check "a volume at the third server" soon fs1 vos create fs3 vicep data
check "a standby of it" soon fs1 vos addstandby fs2 vicep data -sync

tree() { # tree COMMAND: in a container that has the tree at /mnt
    within 120 podman run --rm --network rialto_default --device /dev/fuse --cap-add SYS_ADMIN \
        --entrypoint sh localhost/rialto-client:latest -c \
        "rialto mount --daemon --dir /var/lib/tree fs1:7620 /mnt && $1; got=\$?; \
        rialto umount --dir /var/lib/tree /mnt; exit \$got"
}
check "a client mounts the tree by a server's name" tree "ls /mnt"
podman kill rialto_etcd2_1 > /dev/null
check "a member of etcd is killed: a user is made" soon fs1 pts createuser jim -uid 4712
podman kill rialto_fs1_1 > /dev/null
check "a server is killed: a user is made at another" soon fs2 pts createuser jane -uid 4713
compose start etcd2 fs1 > /dev/null 2>&1
check "both return" soon fs1 pts examine jane

check "all of it is taken down" compose down
check "and made anew from its volumes" compose up -d
check "nothing is lost" soon fs1 pts examine jane
check "the servers are there once" eval 'soon listed && [ "$(fs1 vos listaddrs | wc -l)" -le 3 ]'
check "and the volume where it was" says fs3 0 fs2 vos examine data
finish
