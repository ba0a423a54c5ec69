# Contents and names, from both sides in turns. Sourced by tests/kernels.sh.

# says_there TEXT FILE: the file has just that line, as the client sees it.
says_there() { [ "$(at 60 "cat '$2'")" = "$1" ]; }

first_look() {
    echo first > "$here_at/file"
    next_look
    check "a file of the native mount is read" says_there first "$there/file" || return
    check "and written" at 60 "echo second > '$there/file'"
    next_look
    check "which the mount sees" [ "$(cat "$here_at/file")" = second ]
}

# Each side changes what the other has cached: other contents, other sizes.
turns() {
    local turn text
    for turn in $(seq 10); do
        text=$(printf "native %$((turn * 700))s" $turn)
        echo "$text" > "$here_at/file"
        next_look
        says_there "$text" "$there/file" || { echo "turn $turn of the native mount"; return 1; }
        text=$(printf "client %$((7000 - turn * 600))s" $turn)
        at 60 "printf 'client %$((7000 - turn * 600))s\n' $turn > '$there/file'" || return 1
        next_look
        [ "$(cat "$here_at/file")" = "$text" ] || { echo "turn $turn of the client"; return 1; }
    done
}

# Names that come, go and change, and what a look at them says at once.
names() {
    local turn
    mkdir "$here_at/names" || return 1
    for turn in $(seq 5); do
        at 60 "cd '$there/names' && mkdir dir$turn && echo $turn > dir$turn/file" || return 1
        next_look
        [ "$(cat "$here_at/names/dir$turn/file")" = $turn ] || return 2
        mv "$here_at/names/dir$turn" "$here_at/names/moved$turn" || return 3
        next_look
        at 60 "cd '$there/names' && ! stat dir$turn 2> /dev/null && cat moved$turn/file &&
            mv moved$turn/file moved$turn/other" || return 4
        next_look
        [ ! -e "$here_at/names/moved$turn/file" ] || return 5
        [ "$(cat "$here_at/names/moved$turn/other")" = $turn ] || return 6
        rm -r "$here_at/names/moved$turn" && mkdir "$here_at/names/next$turn" || return 7
        next_look
        [ "$(at 60 "ls -A '$there/names'")" = "next$turn" ] || return 8
        at 60 "rmdir '$there/names/next$turn'" || return 9
        next_look
        [ -z "$(ls -A "$here_at/names")" ] || return 10
    done
}

# Sizes: cut, extended, appended to by both, and mapped.
sizes() {
    local turn
    seq 2000 > "$here_at/sized"
    [ "$(at 60 "stat -c %s '$there/sized'")" = "$(stat -c %s "$here_at/sized")" ] || return 1
    truncate -s 5 "$here_at/sized"
    next_look
    [ "$(at 60 "stat -c %s '$there/sized'; cat '$there/sized'")" = "$(printf '5\n1\n2\n3')" ] ||
        return 2
    at 60 "truncate -s 100000 '$there/sized'" || return 3
    next_look
    [ "$(stat -c %s "$here_at/sized")" = 100000 ] || return 4
    [ "$(tail -c +6 "$here_at/sized" | tr -d '\0' | wc -c)" = 0 ] || return 5
    at 60 "truncate -s 2 '$there/sized'" || return 6
    next_look
    for turn in 1 2 3 4 5; do
        echo "native $turn" >> "$here_at/sized"
        next_look
        at 60 "echo 'client $turn' >> '$there/sized'" || return 7
        next_look
    done
    for turn in 1 2 3 4 5; do printf 'native %s\nclient %s\n' $turn $turn; done |
        cat <(echo 1) - | cmp - "$here_at/sized" || return 8
    at 60 "cat '$there/sized'" | cmp - "$here_at/sized" || return 9
}
mapped() {
    head -c 50000 /dev/zero > "$here_at/mapped"
    next_look
    at 60 "python3 -c '
import mmap, sys
with open(sys.argv[1], \"r+b\") as file:
    with mmap.mmap(file.fileno(), 0) as at:
        at[40000:40006] = b\"mapped\"
        at.flush()' '$there/mapped'" || return 1
    next_look
    [ "$(tail -c +40001 "$here_at/mapped" | head -c 6)" = mapped ] || return 2
    [ "$(stat -c %s "$here_at/mapped")" = 50000 ] || return 3
}

# A file that neither side can keep in one call.
large() {
    at 120 "head -c 5000000 /dev/urandom > '$there/large' && sync '$there/large'" || return 1
    next_look
    [ "$(at 60 "sha256sum < '$there/large'")" = "$(sha256sum < "$here_at/large")" ] || return 2
    dd if=/dev/urandom of="$here_at/large" bs=1000 seek=3000 count=300 conv=notrunc status=none
    next_look
    [ "$(at 60 "sha256sum < '$there/large'")" = "$(sha256sum < "$here_at/large")" ] || return 3
    at 60 "printf changed | dd of='$there/large' bs=1 seek=2500000 conv=notrunc status=none" ||
        return 4
    next_look
    [ "$(tail -c +2500001 "$here_at/large" | head -c 7)" = changed ] || return 5
    [ "$(stat -c %s "$here_at/large")" = 5000000 ]
}
# Holes: one byte behind 4 GiB.
beyond_4_gib() {
    at 120 "printf x | dd of='$there/beyond' bs=1 seek=4294967300 status=none" || return 1
    next_look
    [ "$(stat -c %s "$here_at/beyond")" = 4294967301 ] || return 2
    [ "$(tail -c 1 "$here_at/beyond")" = x ] || return 3
    printf y | dd of="$here_at/beyond" bs=1 seek=4294967296 conv=notrunc status=none
    next_look
    [ "$(at 120 "tail -c 5 '$there/beyond' | tr '\0' .")" = y...x ] || return 4
    at 60 "rm '$there/beyond'"
}

attributes() {
    at 60 "cd '$there' && echo one > attributed && chmod 740 attributed && ln attributed second &&
        touch -d '2001-02-03 04:05:06 UTC' attributed && ln -s nowhere/at/all dangling" || return 1
    next_look
    # The native mount shows the list's mask as the group's bits.
    owners_and() { stat -c "%A $1" "$2" | cut -c 2-4,11-; }
    [ "$(owners_and '%h %Y' "$here_at/attributed")" = "rwx 2 981173106" ] || return 2
    [ "$(readlink "$here_at/dangling")" = nowhere/at/all ] || return 3
    chmod 600 "$here_at/second" && echo two > "$here_at/second" && rm "$here_at/attributed"
    next_look
    [ "$(at 60 "$(declare -f owners_and); owners_and '%h %s' '$there/second'
        cat '$there/second'")" = "$(printf 'rw- 1 4\ntwo')" ] || return 4
    ! at 60 "stat '$there/attributed'" || return 5
    ln -s second "$here_at/link"
    next_look
    [ "$(at 60 "readlink '$there/link'; cat '$there/link'; readlink '$there/dangling'")" = \
        "$(printf 'second\ntwo\nnowhere/at/all')" ]
}

# Errors as programs know them.
refusals() {
    mkdir -p "$here_at/full/of" && touch "$here_at/plain"
    next_look
    at 60 "export LC_ALL=C; cd '$there'
        tell() { \"\$@\" 2>&1 | sed 's/.*: //'; }
        tell rmdir full; tell cat none; tell mkdir full; tell rmdir plain; tell ls plain/x
        tell ln plain full/plain; tell unlink full; tell mkdir none/dir" > "$WORK/refusals"
    # A hard link into another directory is refused. Of the server's EXDEV kafs knows no errno; the
    # FUSE program passes the server's answer about full directories on as it is.
    local across="Invalid cross-device link" full="Directory not empty"
    [ "$client" != kafs ] || across="Remote I/O error"
    [ "$client" != fuse ] || full="File exists"
    cat << END | diff - "$WORK/refusals"
$full
No such file or directory
File exists
Not a directory
Not a directory
$across
Is a directory
No such file or directory
END
}

# Names by thousands, made on either side.
many_names() {
    (mkdir "$here_at/many" && cd "$here_at/many" && seq -f 'native.%g' 5000 | xargs touch) ||
        return 1
    next_look
    [ "$(at 120 "ls '$there/many' | wc -l")" = 5000 ] || return 2
    at 500 "cd '$there/many' && seq -f 'client with a longer name.%g' 1000 |
        while read -r name; do : > \"\$name\" || exit 1; done && rm native.?00" || return 3
    next_look
    [ "$(ls "$here_at/many" | wc -l)" = 5991 ] || return 4
    [ "$(at 120 "ls '$there/many' | sort | sha256sum")" = \
        "$(ls "$here_at/many" | sort | sha256sum)" ] || return 5
    rm -r "$here_at/many"
    next_look
    ! at 60 "ls '$there/many'"
}

# A file that is open when it is removed.
removed_while_open() {
    at 60 "cd '$there' && exec 5<> open.here && echo kept >&5 && rm open.here &&
        echo more >&5 && cat /proc/self/fd/5 && exec 5>&-" > "$WORK/open" || return 1
    [ "$(cat "$WORK/open")" = "$(printf 'kept\nmore')" ] || return 2
    next_look
    [ -z "$(ls -A "$here_at" | grep -e open.here -e __afs)" ] || return 3
    # The other side removes it: its bytes are there or it is an error, and nothing hangs.
    echo kept > "$here_at/open.there"
    next_look
    at 90 "exec 5< '$there/open.there' && touch /tmp/is.open && until [ -e /tmp/goes.on ]; do
        sleep 0.1; done; cat <&5; true" > "$WORK/open" 2>&1 &
    at 60 "until [ -e /tmp/is.open ]; do sleep 0.1; done" || return 4
    rm "$here_at/open.there"
    next_look
    ! at 60 "stat '$there/open.there'" || return 5
    at 20 "touch /tmp/goes.on" && wait $! || return 6
    grep -qE '^kept$|No such file|Stale|Input/output' "$WORK/open" ||
        { cat "$WORK/open"; return 7; }
    at 20 "rm /tmp/is.open /tmp/goes.on"
}

# Locks of the whole file, which hold on the other side.
locks() {
    local file
    echo locked > "$here_at/locked"
    next_look
    at 60 "flock -n '$there/locked' sh -c 'touch /tmp/has.it; until [ -e /tmp/lets.go ]; do
        sleep 0.1; done'" &
    at 60 "until [ -e /tmp/has.it ]; do sleep 0.1; done" || return 1
    ! flock -n "$here_at/locked" true || return 2
    at 20 "touch /tmp/lets.go" && wait $! || return 3
    within 20 flock "$here_at/locked" true || return 4
    exec {file}< "$here_at/locked"
    flock -n $file || { flock $file; echo "a lock that was not held was refused"; return 5; }
    ! at 60 "flock -n '$there/locked' true" || return 6
    exec {file}<&-
    at 60 "flock -w 30 '$there/locked' true; got=\$?; rm -f /tmp/has.it /tmp/lets.go; exit \$got"
}

contents_and_names() {
    first_look
    check "each change of either side is seen at the other's next look" turns
    check "also of names" names
    check "also of sizes, and what both append" sizes
    check "a mapped file is written" mapped
    check "a file of some megabytes" large
    check "a byte behind 4 GiB" beyond_4_gib
    # The FUSE program sets no times, has no locks for others, and changes links' targets; and its
    # caller, without a token, owns no file.
    [ "$client" = fuse ] || check "modes, times and links" attributes
    check "refusals are the usual ones" refusals
    check "6,000 names" many_names
    check "a file that is removed while it is open" removed_while_open
    [ "$client" = fuse ] || check "locks hold on the other side" locks
}
