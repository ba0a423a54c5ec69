#!/bin/bash
# Files of a cell without a mount: 'rialto ls', 'cat', 'cp', 'mkdir' and 'rm', beside a mount that
# sees the same.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/files cell=$WORK/files/cell at=$WORK/files/tree here=$WORK/files/here
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$base" "$here"
rialto() { within 120 "$RIALTO" "$@"; }
there() { rialto "$@" --dir "$cell"; }

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell files.test \
    --listen 127.0.0.1:0
check "and a volume below its root" sh -c "
    '$RIALTO' vos create docs --dir '$cell' && '$RIALTO' fs mkmount '$at/docs' docs"

# Trees of every kind of name, through mount points.
mkdir -p "$here/tree/a/b" "$here/tree/ spaces and ünicode"
head -c 5000001 /dev/urandom > "$here/tree/large"
: > "$here/tree/empty"
echo text > "$here/tree/a/b/text"
echo hidden > "$here/tree/a/.hidden"
echo odd > "$here/tree/ spaces and ünicode/-odd"
chmod 640 "$here/tree/a/b/text"
ln -s b/text "$here/tree/a/link"
ln -s /nowhere "$here/tree/a/broken"
check "a tree goes in" there cp -r "$here/tree" rialto:///docs/
check "and is the same at the mount" diff -r --no-dereference "$here/tree" "$at/docs/tree"
check "its modes too" says "640" 0 stat -c %a "$at/docs/tree/a/b/text"
check "links are links" says "/nowhere" 0 readlink "$at/docs/tree/a/broken"
check "it comes out again" there cp -r rialto:///docs/tree "$here/back"
check "and is the same" diff -r --no-dereference "$here/tree" "$here/back"
check "from one place in the cell to another" there cp -r rialto:///docs/tree rialto:///copy
check "that is the same" diff -r --no-dereference "$here/tree" "$at/copy"
check "into a tree that exists, over it" there cp -r "$here/tree" rialto:///docs/
check "the cell by its name" there cp rialto://files.test/docs/tree/large "$here/large"
check "is the same file" cmp "$here/large" "$here/tree/large"

names=$(printf '%s\n' a empty large ' spaces and ünicode' | LC_ALL=C sort)
check "names" test "$(there ls /docs/tree)" = "$names"
check "hidden ones" says ".hidden" 0 sh -c "'$RIALTO' ls -a /docs/tree/a --dir '$cell' |
    grep hidden"
check "with sizes" sh -c "'$RIALTO' ls -l /docs/tree --dir '$cell' | grep -q ' 5000001 .*large'"
check "JSON" says "5000001" 0 sh -c "'$RIALTO' ls --json /docs/tree/large --dir '$cell' |
    sed 's/.*\"bytes\":\([0-9]*\).*/\1/'"
check "a mount point is shown as one" sh -c "'$RIALTO' ls -l / --dir '$cell' |
    grep -q '^ *m.*docs'"
check "cat" says "text" 0 there cat /docs/tree/a/link
check "of several files" says "$(printf 'text\nhidden')" 0 \
    there cat /docs/tree/a/b/text rialto:///docs/tree/a/.hidden
check "of a large one, into a pipe that ends early" sh -c "
    '$RIALTO' cat /docs/tree/large --dir '$cell' | head -c 100 | cmp - -n 100 '$here/large'"

# What the mount changes is seen at once, and the other way round.
echo "from the mount" > "$at/docs/live"
check "the mount's change" says "from the mount" 0 there cat /docs/live
echo "from here" > "$here/live"
check "a change here" there cp "$here/live" rialto:///docs/live
check "is the mount's too" says "from here" 0 cat "$at/docs/live"

check "directories" there mkdir /docs/one rialto:///docs/two
check "with those above" there mkdir -p /docs/three/four/five
check "are at the mount" test -d "$at/docs/three/four/five"
check "one that exists" says exists 1 there mkdir /docs/one
check "a file goes" there rm /docs/live
check "from the mount too" sh -c "! test -e '$at/docs/live'"
check "a tree goes" there rm -r /docs/tree
check "from the mount as well" sh -c "! test -e '$at/docs/tree'"
check "a mount point does not" refused there rm -r /docs
check "and what is behind it stays" test -d "$at/docs/one"
check "what is not there" says "no such" 1 there rm /docs/nothing
check "does not matter with -f" there rm -f /docs/nothing

# gzip: files of either are the other's.
ln -s "$RIALTO" "$base/rialto-gzip"
ours() { within 120 "$base/rialto-gzip" "$@" --dir "$cell"; }
head -c 3000000 "$here/large" > "$here/half" && cat "$here/half" "$RIALTO" > "$here/mixed"
check "a file for gzip" there cp "$here/mixed" rialto:///docs/mixed
check "is compressed in its place" ours rialto:///docs/mixed
check "and gone" sh -c "! test -e '$at/docs/mixed'"
check "gzip reads it" eval "gzip -dc '$at/docs/mixed.gz' | cmp - '$here/mixed'"
check "with its name" sh -c "gzip -Nl '$at/docs/mixed.gz' | grep -q mixed"
check "it is whole" ours -t rialto:///docs/mixed.gz
check "and comes back" ours -dk rialto:///docs/mixed.gz
check "as it was" cmp "$at/docs/mixed" "$here/mixed"
check "an existing file stays" says "-f writes over it" 1 ours -k rialto:///docs/mixed
check "unless it is forced" ours -kf9 rialto:///docs/mixed
gzip -k "$here/half" && gzip -c "$here/live" >> "$here/half.gz"
check "gzip's file, of two members" there cp "$here/half.gz" rialto:///docs/half.gz
check "is read here" eval "ours -dc rialto:///docs/half.gz | cmp - <(cat '$here/half' '$here/live')"
check "from standard input" eval "ours < '$here/mixed' | gzip -dc | cmp - '$here/mixed'"
for bytes in 1000 100 1 0; do
    head -c $bytes "$at/docs/mixed.gz" > "$at/docs/cut.gz"
    check "a file that was cut at $bytes bytes is not whole" refused ours -t rialto:///docs/cut.gz
done
check "and leaves no part" sh -c "! '$base/rialto-gzip' -dk rialto:///docs/cut.gz --dir '$cell' &&
    ! test -e '$at/docs/cut'"
printf 'nothing of gzip' > "$at/docs/odd.gz"
check "nor another file" refused ours -t rialto:///docs/odd.gz

# Mistakes.
check "a missing file" says "no such" 1 there cat /docs/nothing
check "a directory" says directory 1 there cat /docs
check "a directory without -r" says "-r copies" 1 there cp "$here/tree" rialto:///docs/
check "many files into no directory" says "no directory" 1 \
    there cp "$here/large" "$here/live" rialto:///docs/nothing
check "a file onto itself" says "no such" 1 there cp rialto:///docs/one/x rialto:///docs/one/x
check "another cell" refused there ls rialto://elsewhere.test/
# A user who has a login, on a machine without a mount: as that user, and no more.
if [ "$(id -u)" = 0 ]; then
    port=$(sed -n 's/^listen = ".*:\([0-9]*\)"/\1/p' "$cell/cell.toml")
    open=$(mktemp -d /var/tmp/rialto-files.XXXXXX)
    cp "$RIALTO" "$open/rialto"
    mkdir -m 700 "$open/home" "$open/run"
    chown 4711 "$open/home" "$open/run"
    chmod 755 "$open"
    joe() { within 60 setpriv --reuid 4711 --regid 4711 --clear-groups env -i "PATH=$PATH" \
        "HOME=$open/home" "XDG_RUNTIME_DIR=$open/run" "$open/rialto" "$@"; }
    check "a user" within 30 "$RIALTO" pts createuser joe -uid 4711 --dir "$cell"
    check "with a password" sh -c "printf 'open sesame\n' |
        '$RIALTO' passwd joe --new-only --password-stdin --dir '$cell'"
    check "and a directory" sh -c "mkdir -m 700 '$at/joe' && chown 4711:4711 '$at/joe' &&
        mkdir -m 700 '$at/closed' && echo secret > '$at/closed/file' && chmod 644 '$at/closed/file'"
    check "without a login joe sees nothing" refused joe ls /joe --via "127.0.0.1:$port"
    check "joe logs in" says "logged in" 0 eval \
        "printf 'open sesame\n' | joe login joe --password-stdin --via 127.0.0.1:$port"
    check "and puts a file there" eval "cd / && head -c 3000000 '$here/large' > '$open/home/file' &&
        chown 4711 '$open/home/file' && joe cp '$open/home/file' rialto://files.test/joe/"
    check "which is the user's" says "4711" 0 stat -c %u "$at/joe/file"
    check "gets it back" eval "joe cat /joe/file --cell files.test | cmp - '$open/home/file'"
    check "may go nowhere else" says "'rialto status' shows as whom" 1 \
        joe cat /closed/file --cell files.test
    check "and put nothing there" says "'rialto status' shows as whom" 1 \
        joe cp "$open/home/file" rialto://files.test/docs/
    rm -rf --one-file-system "$open"
fi
check "nothing runs" sh -c "'$RIALTO' down --dir '$cell' > /dev/null; ! '$RIALTO' ls --dir '$cell'"
finish
