#!/bin/bash
# git on mount A, seen from mount B: init, commit, gc, fsck, and a clone from one mount to the
# other.
. "$(dirname "$0")/../lib/real.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
from=/usr/include
[ "$QUICK" = no ] && commits=12 || commits=3

mkdir "$A/git" && cd "$A/git" || { fail "a directory for git"; finish; }
check "init" within 60 git init -q .
for number in $(seq "$commits"); do
    mkdir -p "round-$number" &&
        cp -r "$from/linux" "$from/x86_64-linux-gnu/bits" "round-$number/" 2>/dev/null
    echo "$number" > number
    check "commit $number" within 600 sh -c "git add -A && git commit -q -m 'round $number'"
done
check "the other mount is clean at once" within 120 sh \
    -c "cd '$B/git' && git status --porcelain | { ! grep . ; }"
check "gc" within 600 git gc -q --prune=now
check "fsck" within 600 git fsck --full --strict
check "fsck on the other mount" within 600 git -C "$B/git" fsck --full
check "clone over both mounts" within 600 git clone -q "$A/git" "$B/git-clone"
check "the clone is the same" within 300 diff -r \
    --no-dereference "$A/git/round-1" "$A/git-clone/round-1"
echo "from the other side" >> "$B/git/number"
check "commit from the other mount" within 120 git -C "$B/git" commit -q -a -m other
check "and seen here at once" within 60 sh \
    -c "[ \"\$(git -C '$A/git' rev-list --count HEAD)\" = $((commits + 1)) ]"
cd / && rm -rf "$A/git" "$A/git-clone"
finish
