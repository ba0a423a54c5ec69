#!/bin/bash
# guide.sh [--bin DIR]: runs pages of docs/operations, block by block in their order, on a cell of
# its own in name spaces of its own, where /srv/rialto and the other places of the pages are free.
#
# Blocks of a page: `sh` is run, and each of its commands must succeed; `toml FILE` is a line of
# that file, which replaces the one of its name. Any other block is a failure.
# Needs root and /dev/fuse.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${CARGO_TARGET_DIR:-$PWD/target}/release
[ "${1:-}" != --bin ] || bin=$2
rialto=$(realpath "$bin/rialto")
failures=0
pass() { printf 'PASS guide: %s\n' "$*"; }
fail() { printf 'FAIL guide: %s\n' "$*"; failures=$((failures + 1)); }
if [ "$(id -u)" != 0 ] || [ ! -w /dev/fuse ]; then
    echo "SKIP guide: it needs root and /dev/fuse"
    exit 0
fi
if [ -z "${IN_GUIDE:-}" ]; then
    IN_GUIDE=yes exec unshare --mount --net --propagation private "$0" --bin "$bin"
fi
work=$(mktemp -d -t rialto-guide.XXXXXX)
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
ip addr add 192.0.2.2/32 dev lo
mount -t tmpfs tmpfs /mnt
mount -t tmpfs tmpfs /srv
mkdir "$work/programs" /srv/{first,rialto,disk2,disk3,disk4}
ln -s "$rialto" "$work/programs/rialto"
export PATH=$work/programs:$PATH RIALTO_HOME=/srv/rialto
cleanup() {
    for dir in /srv/rialto /srv/first; do
        timeout 60 rialto down --lazy --dir $dir > /dev/null 2>&1; done
    cd / && rm -rf "$work"
}
trap cleanup EXIT

# check WHAT COMMAND...: its output is shown only when it fails.
check() {
    local what=$1
    shift
    if within "$@" > "$work/log" 2>&1 < /dev/null; then pass "$what"; return; fi
    fail "$what"
    tail -n 15 "$work/log" | cut -c 1-200 | sed 's/^/     | /'
    return 1
}

# A function of this file, or a program that must not hang.
within() { if declare -F "$1" > /dev/null; then "$@"; else timeout 120 "$@"; fi; }

# The line of a file of settings with the name of this one.
set_line() { # FILE LINE
    local name=${2%% =*}
    case $name in partitions) name='partitions\?' ;; esac
    grep -q "^$name = " "$1" || { echo "$1 has no such line"; return 1; }
    sed -i "s|^$name = .*|$2|" "$1"
}

page() { # page NAME
    local number=0 kind file page=docs/operations/$1.md
    while read -r kind file _; do
        python3 tests/lib/page.py "$page" show $number > "$work/block"
        case $kind in
            sh) check "$1: block $number runs" bash -euo pipefail "$work/block" || return ;;
            toml)
                check "$1: block $number is set" set_line "$file" "$(< "$work/block")" || return ;;
            *) fail "$1: block $number is neither run nor set: '$kind'" ;;
        esac
        number=$((number + 1))
    done < <(python3 tests/lib/page.py "$page" list)
    [ "$number" -gt 0 ] || fail "$1 has no blocks"
}

# A cell of two servers, the second with two partitions and a volume on each.
check "a cell" rialto up --no-mount --dir /srv/first --cell example.org --listen 192.0.2.1:7620
check "a second server" rialto up --no-mount --dir /srv/rialto --join 192.0.2.1:7620 \
    --keys /srv/first/keys --listen 192.0.2.2:7620 --server second
timeout 60 rialto down --dir /srv/rialto > /dev/null 2>&1
set_line /srv/rialto/cell.toml 'partitions = ["vicep", "/srv/disk2/vicepb"]'
check "with two disks" rialto up --dir /srv/rialto --no-mount
check "a volume on one" rialto vos create second vicepb home.alice
check "a snapshot of it" rialto vos snapshot create home.alice monday
check "a volume on the other" rialto vos create second vicep home.bob
page replace-a-disk
on() { grep -q "^ *second .*$2 *$" <<< "$(timeout 60 rialto vos examine "$1")"; }
check "the volume is on the new disk" on home.alice vicepc
check "with its snapshot" bash -c "rialto vos snapshot list home.alice | grep -q monday"
check "the other is where it was" on home.bob vicep
check "on the copy of the disk" grep -q '"/srv/disk4/vicep"' /srv/rialto/cell.toml
check "and the old disks are not needed" bash -c "rm -r /srv/disk2/* /srv/rialto/vicep &&
    rialto down --dir /srv/rialto && rialto up --dir /srv/rialto --no-mount &&
    rialto vos examine home.alice && rialto vos examine home.bob"
exit $((failures > 0))
