#!/bin/bash
# SQLite under locks. Rollback journals (DELETE, TRUNCATE, PERSIST): several processes on both
# mounts write one database.
# WAL: several processes on one mount; its shared memory cannot be shared between machines, on any
# network file system.
. "$(dirname "$0")/../lib/real.sh"
[ "$QUICK" = no ] && rows=400 || rows=40
mkdir -p "$A/sqlite"

writer() { # writer DATABASE JOURNAL NAME ROWS
    python3 - "$@" << 'PY'
import sqlite3, sys
database, journal, name, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
link = sqlite3.connect(database, timeout=120, isolation_level=None)
mode = link.execute(f"pragma journal_mode={journal}").fetchone()[0]
assert mode.lower() == journal.lower(), mode
for number in range(rows):
    link.execute("begin immediate")
    before = link.execute("select value from total").fetchone()[0]
    link.execute("insert into rows values (?, ?, ?)", (name, number, "x" * (number * 37 % 3000)))
    link.execute("update total set value = ?", (before + 1,))
    link.execute("commit")
PY
}

judge() { # judge DATABASE ROWS: integrity, no lost update, no missing row
    python3 - "$@" << 'PY'
import sqlite3, sys
link = sqlite3.connect(sys.argv[1], timeout=120)
assert link.execute("pragma integrity_check").fetchall() == [("ok",)]
rows = link.execute("select count(*) from rows").fetchone()[0]
total = link.execute("select value from total").fetchone()[0]
assert rows == total == int(sys.argv[2]), (rows, total, sys.argv[2])
PY
}

create() {
    sqlite3 "$1" "pragma journal_mode=$2;
        create table rows (name, number, text, primary key (name, number));
        create table total (value);
        insert into total values (0);"
}

together() { # together JOURNAL DIRECTORY...: one writer in each
    local journal=$1 number=0 pids=() pid bad=0 dir
    shift
    for dir in "$@"; do
        number=$((number + 1))
        writer "$dir/sqlite/$journal.db" "$journal" "writer-$number" "$rows" & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || bad=1; done
    return $bad
}
export -f together writer judge
export rows

for journal in delete truncate persist; do
    check "$journal: create" create "$A/sqlite/$journal.db" "$journal"
    check "$journal: four writers on two mounts" within 900 bash \
        -c "together $journal '$A' '$B' '$A' '$B'"
    check "$journal: whole, seen from A" judge "$A/sqlite/$journal.db" $((rows * 4))
    check "$journal: whole, seen from B" judge "$B/sqlite/$journal.db" $((rows * 4))
done
check "wal: create" create "$A/sqlite/wal.db" wal
check "wal: three writers on one mount" within 900 bash -c "together wal '$A' '$A' '$A'"
check "wal: whole" judge "$A/sqlite/wal.db" $((rows * 3))
check "wal: whole, seen from B when all are closed" judge "$B/sqlite/wal.db" $((rows * 3))
rm -rf "$A/sqlite"
finish
