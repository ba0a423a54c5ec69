#!/bin/bash
# Without root: a user who is nobody special makes a cell, mounts it through fusermount3, works in
# it, and takes it away. As root this runs as the user nobody, otherwise as who runs it.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
home=$WORK/nonroot
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups env -i "PATH=$PATH" "HOME=$home")
    owner=nobody
else
    as=(env "HOME=$home") owner=$(id -un)
fi
if [ ! -u "$(command -v fusermount3)" ]; then
    skip "no set-uid fusermount3 (package fuse3)"; finish; fi
# Where the device is for root alone, a name space of ours gets one that is open, as Debian's is.
if [ "$(id -u)" = 0 ] && ! "${as[@]}" sh -c 'test -r /dev/fuse && test -w /dev/fuse' &&
    [ -z "${OPEN_FUSE:-}" ]; then
    export OPEN_FUSE=$WORK/fuse
    mknod -m 666 "$OPEN_FUSE" c 10 229 2> /dev/null &&
        exec unshare --mount --propagation private sh \
        -c 'mount --bind "$OPEN_FUSE" /dev/fuse && exec bash "$0"' "$0"
fi
mkdir -p "$home" && cp "$RIALTO" "$home/rialto" && chmod 755 "$home/rialto" &&
    chown -R "$owner" "$home" || { fail "a home for $owner"; finish; }
if ! "${as[@]}" sh -c 'test -r /dev/fuse && test -w /dev/fuse'; then
    skip "/dev/fuse is not open to $owner (its mode is $(stat -c %a /dev/fuse); Debian's is 666)"
    finish
fi
rialto() { within 90 "${as[@]}" "$home/rialto" "$@"; }
tree=$home/.local/share/rialto/mnt
trap 'rialto down --lazy > /dev/null 2>&1' EXIT

# Done by the user, in one shell: what people do.
work() {
    within 120 "${as[@]}" GIT_CONFIG_GLOBAL=/dev/null sh -euc '
        cd "$1"
        mkdir -p deep/er && cp -r /etc/apt deep/er/
        diff -r /etc/apt deep/er/apt
        echo one > file && ln file hard && ln -s file soft && chmod 640 file &&
            touch -d 2001-02-03 file
        [ "$(stat -c "%a %h %Y %U" hard)" = "640 2 $(date -d 2001-02-03 +%s) $2" ]
        setfattr -n user.a -v b file && getfattr -n user.a file > /dev/null
        git init -q . && git add -A && git -c user.name=t -c user.email=t@t commit -q -m one &&
            git fsck --strict 2> /dev/null
        flock file true
        sync file
        rm -rf deep' sh "$tree" "$owner"
}

check "up makes a cell below the home directory" rialto up
check "and its maker is an administrator of it" says "system:administrators" 0 rialto pts \
    membership "$owner"
[ "$(stat -fc %T "$tree" 2> /dev/null || "${as[@]}" stat -fc %T "$tree")" = fuseblk ] ||
    "${as[@]}" sh -c "grep -q ' $tree fuse.rialto ' /proc/mounts" && pass "it is mounted" ||
    fail "it is not mounted"
check "work in the tree" work
if [ "$(id -u)" = 0 ] && ! grep -qx user_allow_other /etc/fuse.conf 2> /dev/null; then
    check "others are kept out, root too" sh -c "! ls '$tree' 2> /dev/null"
fi
check "status" rialto status
check "status in JSON says that it answers" sh \
    -c "$(printf '%q ' "${as[@]}") '$home/rialto' status --json | grep -q '\"state\": *\"answers\"'"
check "doctor finds nothing wrong" rialto doctor
# Volumes below mount points, which nobody can mount here: all are in one mount.
vos() { rialto vos "$@"; }
check "status says that volumes are in one mount" sh \
    -c "$(printf '%q ' "${as[@]}") '$home/rialto' status | grep -q 'flat on $tree'"
check "a second volume" vos create home.work
check "and one below it" vos create home.deep
check "a mount point" rialto fs mkmount "$tree/work" home.work
check "is walked through" "${as[@]}" sh -euc \
    'cd "$1/work" && echo text > file && mkdir dir && cp -r /etc/apt dir/ &&
        diff -r /etc/apt dir/apt && cd dir && [ "$(pwd -P)" = "$1/work/dir" ]' sh "$tree"
check "one in it too" rialto fs mkmount "$tree/work/deep" home.deep
check "as deep as they go" "${as[@]}" sh -euc \
    'echo deep > "$1/work/deep/file" && [ "$(find "$1" -name file | wc -l)" = 3 ] &&
        grep -rqx deep "$1/work"' sh "$tree"
check "in one mount" test "$(grep -c " $tree" /proc/self/mountinfo)" = 1
check "no link goes from one to the other" "${as[@]}" sh \
    -c "! ln '$tree/file' '$tree/work/link' 2> /dev/null && mv '$tree/work/file' '$tree/moved' &&
        grep -q text '$tree/moved' && ! test -e '$tree/work/file'"
check "and nothing takes a mount point away" "${as[@]}" sh \
    -c "! rmdir '$tree/work' 2> /dev/null && ! mv '$tree/work' '$tree/other' 2> /dev/null &&
        test -d '$tree/work/dir'"
check "a snapshot" vos snapshot create home.work before
check "is read-only" "${as[@]}" sh -euc \
    '"$1/rialto" fs mkmount "$2/before" home.work.snapshot.before &&
        diff -r /etc/apt "$2/before/dir/apt" && ! touch "$2/before/new" 2> /dev/null &&
            ! sh -c "echo x >> $2/before/dir/apt/sources.list" 2> /dev/null' sh "$home" "$tree"
mount=$(head -n 1 "$home"/.local/share/rialto/mounts/*.pid)
kill -9 "$mount"
# A loaded machine takes a moment to end it, and until then it has the mount.
until is_over "$mount"; do sleep 0.05; done
check "up takes a dead mount away and mounts again" rialto up
check "and the files are there" "${as[@]}" grep -q one "$tree/file"
check "down" rialto down
check "nothing is left mounted" sh -c "! grep -q ' $home' /proc/mounts"
# Where users may let others in, a second user of this machine sees what lists allow, and nothing
# else.
if [ -z "${OPEN_FUSE:-}" ]; then
    skip "a second user: needs a mount name space of ours with another /etc/fuse.conf"
    finish
fi
[ -e /etc/fuse.conf ] || { skip "a second user: no /etc/fuse.conf"; finish; }
echo user_allow_other > "$WORK/fuse.conf" && mount --bind "$WORK/fuse.conf" /etc/fuse.conf
second() { setpriv --reuid=daemon --regid=daemon --clear-groups "$@"; }
reads() { [ "$(second cat "$1" 2> /dev/null)" = text ]; }
check "up, where users may let others in" rialto up
"${as[@]}" chmod 755 "$tree"
check "the second user is known" rialto pts createuser daemon -uid "$(id -u daemon)"
check "a volume where lists decide" vos create home.lists -model acl -acl "$owner" all
check "in the tree" rialto fs mkmount "$tree/lists" home.lists
check "has what its maker puts there" "${as[@]}" sh \
    -euc 'cd "$1/lists" && mkdir shared own && echo text | tee shared/file > own/file &&
        chmod 666 shared/file own/file' sh "$tree"
check "others see nothing of it" refused second ls "$tree/lists"
check "a list lets the second one look" rialto fs setacl "$tree/lists" daemon l
check "and read in one directory" rialto fs setacl "$tree/lists/shared" daemon rl
check "he sees both" [ "$(second ls "$tree/lists" | paste -sd' ')" = "own shared" ]
check "and reads there" reads "$tree/lists/shared/file"
check "not in the other" refused second cat "$tree/lists/own/file"
check "nor writes" refused second sh -c "echo more >> '$tree/lists/shared/file'"
check "a list lets him write" rialto fs setacl "$tree/lists/shared" daemon write
check "and he does" second sh -c \
    "echo his > '$tree/lists/shared/new' && rm '$tree/lists/shared/new'"
check "a list keeps him out" rialto fs setacl "$tree/lists/shared" daemon none
check "at once" refused second cat "$tree/lists/shared/file"
check "down with it" rialto down
finish
