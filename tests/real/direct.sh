#!/bin/bash
# Programs that use a cell without a mount: in C, Python and Rust, beside a mount of the same cell,
# which must see the same bytes; fsspec, pandas and pyarrow on it; programs that are killed; errors.
#
# Python packages of others are those of the environment that 'scripts/setup.sh test' makes.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
top=$(cd "$(dirname "$0")/../.." && pwd)
library=${RIALTO%/*}/librialto.so
base=$WORK/direct cell=$base/cell at=$base/tree
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$base"
export RIALTO_LIBRARY=$library RIALTO_SERVER=unix:$cell/server.sock
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$base/site

# Where the interface and the examples were not built with the rest.
export CARGO_TARGET_DIR=${RIALTO%/*/rialto}
profile=dev; [ "${RIALTO%/release/rialto}" = "$RIALTO" ] || profile=release
if [ ! -e "$library" ] || [ ! -x "$TOOLS/copy" ]; then
    check "the library is built" env -C "$top" cargo build --locked --profile $profile \
        -p rialto-capi -p rialto-client --lib --examples
fi

# As an installed package: with its entry points.
mkdir -p "$base/site/rialto-0.dist-info"
ln -s "$top/python/rialto" "$base/site/rialto"
python3 - "$top/python/pyproject.toml" "$base/site/rialto-0.dist-info" << 'END'
import pathlib, sys, tomllib
points = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]["entry-points"]
lines = [line for group, entries in points.items()
         for line in [f"[{group}]", *(f"{name} = {where}" for name, where in entries.items())]]
place = pathlib.Path(sys.argv[2])
(place / "entry_points.txt").write_text("\n".join(lines) + "\n")
(place / "METADATA").write_text("Metadata-Version: 2.1\nName: rialto\nVersion: 0\n")
END

symbols() { nm -D --defined-only "$library" | awk '{ print $3 }' | sed 's/@.*//' | sort; }
declared() { grep -oE '\brialto_[a-z_]+\(' "$top/crates/capi/include/rialto.h" | tr -d '(' |
    sort -u; }
check "the library exports the functions of the header, and no other name" diff <(declared) \
    <(symbols)
cat > "$base/syntax.py" << 'END'
import ast, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    ast.parse(path.read_text(), str(path), feature_version=(3, 9))
END
check "the package is in the words of Python 3.9" python3 "$base/syntax.py" "$top/python"

# With clear text over TCP, and a directory in which the anonymous caller may write: programs cannot
# show the tokens of a user yet.
check "a cell" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell direct.test --trust-root \
    --trust 127.0.0.0/8 --listen 127.0.0.1:0 --clear
mkdir -m 777 "$at/open"

check "copy.c is built" gcc -std=c11 -Wall -Wextra -Werror -O1 -I "$top/crates/capi/include" \
    -o "$base/copy" "$top/examples/copy.c" -L "${library%/*}" -lrialto \
    -Wl,-rpath,"${library%/*}"
mib=37; [ "$QUICK" = yes ] || mib=600
head -c $((mib * 1048576 + RANDOM)) /dev/urandom > "$base/large"
echo small > "$base/small"
: > "$base/empty"
tcp=tcp:$(sed -n 's/^listen = "\(.*\)"/\1/p' "$cell/cell.toml")
programs=("$base/copy" "python3 $top/examples/copy.py" "$TOOLS/copy") sources=(c py rs)
for server in "$RIALTO_SERVER" "$tcp"; do
    for at_program in 0 1 2; do
        program=${programs[at_program]}
        for size in large small empty; do
            what="copy.${sources[at_program]} over ${server%%:*}, a file: $size"
            rm -f "$at/open/copied"
            # shellcheck disable=SC2086 # A program and its script.
            check "$what" says "and the cell has the same" 0 within 120 $program "$server" \
                "$base/$size" open/copied
            check "$what, and the mount has the same bytes" cmp "$base/$size" "$at/open/copied"
        done
        # shellcheck disable=SC2086 # A program and its script.
        check "copy.${sources[at_program]} over ${server%%:*} says which error" says \
            "no such entry" 1 within 60 $program "$server" "$base/small" no/directory
    done
done

python() { within 120 python3 "$top/python/tests/programs.py" "$@"; }
for part in operations names see sharing errors fork threads; do
    check "Python: $part" python $part "$at"
done

# SQLite in the cell, and in the mount of the same cell: an empty VFS.
vfs=$base/rialto_vfs.so loads=''
for at_python in python3 /usr/bin/python3; do
    [ -n "$loads" ] || ! "$at_python" -c 'import sqlite3
sqlite3.connect("").enable_load_extension' 2> /dev/null || loads=$at_python
done
with_sqlite() { within 120 "$loads" "$top/python/tests/programs.py" "$@"; }
transactions=200
both() { # both JOURNAL PATH VFS PATH: a writer in the cell, and one as VFS and its PATH say
    local one two bad=0
    with_sqlite add "$vfs" "$2" $transactions "$1" > /dev/null & one=$!
    with_sqlite add "$3" "$4" $transactions "$1" > /dev/null & two=$!
    wait $one || bad=1
    wait $two || bad=1
    return $bad
}
killed_when() { # killed_when PROGRAM FILE LINES: the program is killed when the file has so many
    within 60 sh -c "until [ \$(wc -l < '$2') -ge $3 ]; do sleep 0.01; done" || cat "$2"
    kill -9 "$1"
    wait "$1" 2> /dev/null
}
if [ ! -e /usr/include/sqlite3ext.h ] || [ -z "$loads" ]; then
    skip "no sqlite3ext.h, or no Python that loads it; 'scripts/setup.sh test' installs both"
else
    check "rialto_vfs.c is built" gcc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -O1 \
        -fPIC -shared -I "$top/crates/capi/include" -o "$vfs" \
        "$top/examples/sqlite_vfs/rialto_vfs.c" -L "${library%/*}" -lrialto \
        -Wl,-rpath,"${library%/*}"
    for journal in delete truncate persist; do
        check "SQLite, $journal: create" with_sqlite database "$vfs" $journal.db $journal
        check "SQLite, $journal: two programs" both $journal $journal.db "$vfs" $journal.db
        check "SQLite, $journal: whole" with_sqlite judge "$vfs" $journal.db 400 400
        check "SQLite, $journal: whole, in the mount" with_sqlite judge "" "$at/$journal.db" 400 400
    done
    check "SQLite: a program, and one in the mount" both delete delete.db "" "$at/delete.db"
    check "SQLite: both wrote one database" with_sqlite judge "$vfs" delete.db 800 800
    check "SQLite: WAL is for one program alone" with_sqlite write_ahead "$vfs" truncate.db

    "$loads" "$top/python/tests/programs.py" add "$vfs" persist.db 100000 persist \
        > "$base/added" & program=$!
    with_sqlite add "$vfs" persist.db $transactions persist > /dev/null & other=$!
    killed_when $program "$base/added" 50
    check "SQLite: a program goes on when the other one is killed" wait $other
    least=$((600 + $(wc -l < "$base/added")))
    check "SQLite: of the killed one's transactions each is there, or nothing of it" \
        with_sqlite judge "$vfs" persist.db $least $((least + 1))
    mkfifo "$base/stops"
    for judges in "$vfs" ""; do
        "$loads" "$top/python/tests/programs.py" hot "$vfs" delete.db < "$base/stops" \
            > "$base/hot" & program=$!
        exec 7> "$base/stops"
        killed_when $program "$base/hot" 1
        exec 7>&-
        check "SQLite: a hot journal is there" test -s "$at/delete.db-journal"
        [ -n "$judges" ] && where=delete.db || where=$at/delete.db
        check "SQLite: half a transaction is rolled back, at $where" with_sqlite judge "$judges" \
            "$where" 800 800
    done
fi

# The page for developers has whole programs.
cat > "$base/blocks.py" << 'END'
import pathlib, re, sys
page, ending, place = sys.argv[1:]
blocks = re.findall(rf"^```{ending}\n(.*?)^```", pathlib.Path(page).read_text(), re.M | re.S)
for number, block in enumerate(blocks):
    pathlib.Path(f"{place}/page{number}.{ending}").write_text(block)
assert blocks
END
page=$top/docs/operations/programs.md
for language in c python; do
    python3 "$base/blocks.py" "$page" $language "$base" || fail "no programs in $language in $page"
done
check "programs.md: C is built" gcc -std=c11 -Wall -Wextra -Werror -I "$top/crates/capi/include" \
    -o "$base/page" "$base/page0.c" -L "${library%/*}" -lrialto -Wl,-rpath,"${library%/*}"
check "programs.md: C" says "5 bytes: bytes" 0 within 60 "$base/page"
check "programs.md: Python" says "b'some bytes'" 0 within 60 python3 "$base/page0.python"
check "programs.md: opens, keys and locks" says "b'a line" 0 within 60 python3 \
    "$base/page3.python"

# A user of this machine who is not root, at the socket for users: in copies that the user may read.
if [ "$(id -u)" -ne 0 ]; then
    skip "users of this machine: only root can be another user"
else
    users=$(within 60 "$RIALTO" status --dir "$cell" --json | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["report"]["server"]["users_socket"])')
    check "status names the socket for users" says "reach it at unix:$users" 0 \
        "$RIALTO" status --dir "$cell"
    install -d -m 755 "$base/user" && cp -r "$top/python/rialto" "$library" "$base/page2.python" \
        "$top/python/tests/user.py" "$base/user/" && chmod -R a+rX "$base/user"
    as_user() { local uid=$1; shift; within 60 setpriv --reuid "$uid" --regid "$uid" \
        --clear-groups env -C / "RIALTO_LIBRARY=$base/user/librialto.so" \
        "RIALTO_SERVER=unix:$users" "PYTHONPATH=$base/user" "$@"; }
    check "programs.md: a user's program in Python, through a lane" says \
        "b'for user 4711 alone' True" 0 as_user 4711 python3 "$base/user/page2.python"
    check "the file is the user's" test "$(stat -c '%u %a' "$at/open/mine")" = "4711 600"
    check "the user reads it again, through a lane" as_user 4711 python3 "$base/user/user.py" \
        reads open/mine
    check "another user is refused it" as_user 4712 python3 "$base/user/user.py" refused open/mine
    check "and so is root there, which is an ordinary user" as_user 0 python3 \
        "$base/user/user.py" refused open/mine
    check "who reads it at the server's own socket" within 60 python3 "$base/user/user.py" reads \
        open/mine
    check "the server's own socket is not for the user" refused as_user 4711 env \
        "RIALTO_SERVER=unix:$cell/server.sock" python3 "$base/user/user.py" reads open/mine
    install -m 755 "$RIALTO" "$base/user/rialto.program"
    mkdir "$base/user/one" && ln -s "$users" "$base/user/one/direct.test.sock"
    found() { as_user 4711 env -u RIALTO_HOME "HOME=$base/user" "RIALTO_RUN=$base/user/one" \
        "RIALTO_TOKENS=$base/none" "$base/user/rialto.program" cat "$@"; }
    check "rialto cat finds the cell's server by its name" says "for user 4711 alone" 0 \
        found rialto://direct.test/open/mine
    check "and without a name where the machine has no other" says "for user 4711 alone" 0 \
        found open/mine
fi

# Programs are killed at any point; their server and other programs go on.
server=$(head -n 1 "$cell/server.pid")
sessions() { within 60 "$RIALTO" status --dir "$cell" --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["report"]["sessions"])'; }
as_before() { until [ "$(sessions)" -le "$before" ]; do sleep 0.5; done; }
before=$(sessions)
kills=5; [ "$QUICK" = yes ] || kills=60
killed=0
for ((at_kill = 0; at_kill < kills; at_kill++)); do
    python3 "$top/python/tests/programs.py" busy killed > "$base/busy" 2>&1 & program=$!
    within 30 sh -c "until grep -q busy '$base/busy'; do sleep 0.02; done" || cat "$base/busy"
    sleep 0.0$((RANDOM % 10))
    kill -9 $program && killed=$((killed + 1))
    wait $program 2> /dev/null
done
check "$kills programs were killed while they appended" test $killed = $kills
check "whole records alone are in the file" python records "$at/killed"
check "the server is the same process, and answers" test \
    "$(head -n 1 "$cell/server.pid")" = "$server"
check "others go on" python see "$at"
export -f sessions as_before within; export cell before
check "the sessions of the killed ones are over" within 40 bash -c as_before

# The server is killed under a program, which goes on when it is there again.
python3 "$top/python/tests/programs.py" holds held "$base/lets_go" > "$base/holds" 2>&1 & holder=$!
within 30 sh -c "until grep -q holds '$base/holds'; do sleep 0.02; done" || cat "$base/holds"
check "a file that a program has alone is no one else's" python kept_out held
python3 "$top/python/tests/programs.py" busy again > "$base/busy" 2>&1 & program=$!
within 30 sh -c "until grep -q busy '$base/busy'; do sleep 0.02; done" || cat "$base/busy"
kill -9 "$server"
check "the server is started again" says "starting it again" 0 within 90 "$RIALTO" up \
    --dir "$cell" --at "$at"
size=$(stat -c %s "$at/again")
check "nor after the server was killed" python kept_out held
touch "$base/lets_go"
check "the program has had it all the time" wait $holder
check "a program that lost its server goes on" within 60 sh -c \
    "until [ \$(stat -c %s '$at/again') -gt $size ]; do sleep 0.1; done"
check "and got no error" test "$(cat "$base/busy")" = busy
kill -9 $program && wait $program 2> /dev/null
check "each of its records is there once" python records "$at/again" once

# Packages of others.
others=$CACHE/python/venv/bin/python
while read -r part needs; do
    if "$others" -c "import $needs" 2> /dev/null; then
        check "Python with $needs" within 120 "$others" "$top/python/tests/programs.py" "$part" \
            "$at"
        [ "$part" != filesystem ] || check "programs.md: fsspec" says "b'1,one" 0 within 60 \
            "$others" "$base/page1.python"
    else
        skip "no $needs for Python; 'scripts/setup.sh test' installs it"
    fi
done << 'END'
numpy numpy
filesystem fsspec
tables fsspec, pandas, pyarrow
END

# The wheel has the library in it.
if [ "$QUICK" = yes ]; then
    note "the long form builds the wheel"
elif [ ! -x "${others%/*}/maturin" ]; then
    skip "no maturin for Python; 'scripts/setup.sh test' installs it"
else
    check "a wheel is built" env -C "$top/python" PATH="${others%/*}:$PATH" maturin build --locked \
        --profile $profile --out "$base/wheel"
    check "and installed" within 120 "$others" -m pip install --quiet --no-deps --no-index \
        --disable-pip-version-check --target "$base/installed" "$base"/wheel/*.whl
    for part in operations filesystem; do
        check "Python: $part, with the wheel" within 120 env -u RIALTO_LIBRARY \
            PYTHONPATH="$base/installed" "$others" "$top/python/tests/programs.py" $part "$at"
    done
fi

check "down" within 90 "$RIALTO" down --dir "$cell"
check "without a server a program says so" says "ReachError" 1 python operations "$at"
finish
