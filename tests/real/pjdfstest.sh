#!/bin/sh
# POSIX conformance: runs pjdfstest as root in a directory of a mount.
#
# usage: tests/real/pjdfstest.sh DIRECTORY [PATTERN...]
#
# Installs the tool (the crate pjdfstest) below $PJDFSTEST_ROOT, by default target/tools, if it is
# not there.
set -eu

version=0.2.2
here=$(cd "$(dirname "$0")" && pwd)
root=${PJDFSTEST_ROOT:-$here/../../target/tools}

if [ $# -lt 1 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 2
fi
directory=$1
shift

if [ "$(id -u)" != 0 ]; then
    echo "pjdfstest.sh: needs root: the cases switch users, make devices and remount" >&2
    exit 2
fi
if [ ! -x "$root/bin/pjdfstest" ]; then
    cargo install --quiet pjdfstest --version "$version" --root "$root"
fi

work=$(mktemp -d)
cases=$(mktemp -d "$directory/pjdfstest.XXXXXX")
cleanup() {
    umount "$work/other" 2>/dev/null || true
    rm -rf "$work" "$cases"
}
trap cleanup EXIT INT TERM

# `mount -o remount` would look for a helper of our file system's type, and there is none.
mkdir "$work/bin" "$work/other"
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" > "$work/bin/mount"
chmod 755 "$work/bin/mount"
# For the cases that cross file systems.
mount -t tmpfs none "$work/other"

# Other users must reach the cases.
chmod 755 "$cases"
run() {
    config=$1
    shift
    PATH=$work/bin:$PATH "$root/bin/pjdfstest" -c "$config" -p "$cases" -s "$work/other" "$@"
}

if [ $# -gt 0 ]; then
    run "$here/pjdfstest.toml" "$@"
    exit
fi
# Two runs, because some of the tool's `open` cases leave a descriptor open, and nothing can be
# remounted read-only from then on (on any file system): first what remounts, then all the rest.
run "$here/pjdfstest.toml" erofs
sed 's/^allow_remount = true/allow_remount = false/' "$here/pjdfstest.toml" > "$work/rest.toml"
run "$work/rest.toml"
