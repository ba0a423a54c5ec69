#!/bin/bash
# A recorded session of OpenAFS's vos, pts and fs (tests/openafs-session) on a cell of its own: the
# same commands end as there, and print the same but for a list of differences.
. "$(dirname "$0")/../lib/real.sh"
session=$(cd "$(dirname "$0")/../openafs-session" && pwd)
base=$WORK/openafs_session
dir=$base/cell
mkdir -p "$base/programs"
trap 'within 60 "$RIALTO" umount --lazy --dir "$dir" "$base/tree" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1' EXIT
check "a cell" within 90 "$RIALTO" up --no-mount --dir "$dir" --cell session.test
within 60 "$RIALTO" down --dir "$dir" > /dev/null
# Partitions with the names that OpenAFS gives them.
mkdir -p "$base/disk"
sed -i "s|^partition = .*|server = \"host1\"\npartitions = [\"vicepa\", \"vicepb\"]|" \
    "$dir/cell.toml"
mv "$dir/vicep" "$dir/vicepa"
sed -i 's/vicep/vicepa/' "$dir/partitions.made"
check "with two partitions" within 90 "$RIALTO" server --daemon --new-partition vicepb --dir "$dir"
ln -s "$RIALTO" "$base/programs/vos"
ln -s "$RIALTO" "$base/programs/pts"
ln -s "$RIALTO" "$base/programs/fs"
export RIALTO_HOME=$dir
check "without volumes" within 60 "$RIALTO" vos remove root.cell -force
# Numbers of volumes that the comparison knows from others, since later ones are higher.
check "with numbers as OpenAFS has" within 60 "$RIALTO" vos create host1 a number -id 536870000
within 60 "$RIALTO" vos remove number > /dev/null
replay() { # DIRECTORY
    within 300 python3 "$session/session.py" "${SESSION_MODE:-replay}" "$1" host1 "$base/tree" \
        "$base/programs" > "$base/log"
    local code=$?
    grep -E '^(PASS|FAIL|     )' "$base/log"
    [ $code -eq 0 ] || failures=$((failures + 1))
}
replay "$session"
# A batch of pts: what is refused is told, the rest is done, and quit ends it.
lines() { printf '%s\n' "$@"; }
lines 'cu zoe -id 4000' 'sleep 0' '' 'examine "zoe"' 'zork' 'e zoe nobody.there' quit 'cu late' \
    > "$base/batch"
echo "source $base/itself" > "$base/itself"
check "a batch goes on after a refusal, and says so" says "running the commands: 2 failed" 1 \
    within 60 "$base/programs/pts" source "$base/batch"
check "what it made is there" says "id: 4000" 0 within 60 "$base/programs/pts" examine zoe
check "what comes behind quit is not" says "no such user" 1 within 60 "$base/programs/pts" \
    examine late
check "from the standard input too" says "has id 4001" 0 within 60 sh -c \
    "echo 'cu -na amy -i 4001' | '$base/programs/pts' in"
check "a file that names itself ends" says "too many files name one another" 1 within 60 \
    "$base/programs/pts" source -file "$base/itself"

# The same for fs, in a tree whose volumes are as OpenAFS makes them.
for volume in root.cell fs.work; do
    check "the volume $volume" within 60 "$RIALTO" vos create host1 a $volume -maxquota 5000 \
        -model acl
done
within 60 "$RIALTO" pts createuser -name ann ben > /dev/null
within 60 "$RIALTO" pts creategroup crew > /dev/null
mkdir -p "$base/tree"
check "the tree" within 60 "$RIALTO" mount --daemon --dir "$dir" "unix:$dir/server.sock" \
    "$base/tree"
cd "$base/tree" && replay "$session/fs"
cd / || exit 1
finish
