#!/bin/bash
# A real source tree of 3,000 files (GNU coreutils): unpacked on mount A and compared from mount B,
# configured, built with make -j2 while the server is killed with kill -9 and started again, then
# its own tests. Long form: more kills, and redis and sqlite built and tested too.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/fetch.sh"
export FORCE_UNSAFE_CONFIGURE=1

# Kills the server every so many seconds until told to stop, and counts. Prints a line for each.
killer() { # killer SECONDS KILLS_MAX
    local count=0 nap=''
    # Nothing of it may stay behind in the tree: a sleeper there would keep the mount busy.
    cd / && trap 'kill $nap 2>/dev/null; exit' TERM
    while [ "$count" -lt "$2" ]; do
        sleep "$1" & nap=$!
        wait $nap
        kill_server && count=$((count + 1))
        sleep 1
        start_server || { echo "the server did not start again"; return 1; }
        echo "kill $count" >> "$WORK/kills"
    done
}

# build_with_kills WHAT SECONDS KILLS_MAX COMMAND...
build_with_kills() {
    local what=$1 seconds=$2 kills=$3 killing='' status
    shift 3
    : > "$WORK/kills"
    if [ -n "$CELL" ]; then killer "$seconds" "$kills" > "$WORK/killer.log" 2>&1 & killing=$!; fi
    check "$what" within 5400 "$@"
    status=$?
    if [ -n "$killing" ]; then
        kill "$killing" 2>/dev/null
        wait "$killing" 2>/dev/null
        # The killer may have been stopped between a kill and the start after it.
        start_server || fail "the server starts after the last kill"
        note "the server was killed $(wc -l < "$WORK/kills") times meanwhile"
    fi
    return $status
}

unpack_and_compare() { # unpack_and_compare ARCHIVE NAME
    mkdir -p "$A/build" "$WORK/native"
    check "$2: unpack" within 900 tar -xf "$1" -C "$A/build" || finish
    tar -xf "$1" -C "$WORK/native"
    tree=$(basename "$(echo "$WORK"/native/*)")
    check "$2: $(find "$WORK/native" -type f | wc -l) files are the same on B at once" within 900 \
        diff -r --no-dereference "$WORK/native/$tree" "$B/build/$tree"
    check "$2: so are modes and times" within 300 bash -c \
        "diff <(cd '$WORK/native/$tree' &&
            find . -printf '%p %m %T@ %l\n' | sort) <(cd '$B/build/$tree' &&
                find . -printf '%p %m %T@ %l\n' | sort)"
    rm -rf "$WORK/native"
}

seen_alike() { # seen_alike NAME FILE...: built on A, and the same bytes on B
    local name=$1
    shift
    check "$name: what was built is the same on B" within 300 bash -c \
        "diff <(cd '$A/build/$tree' && sha256sum $*) <(cd '$B/build/$tree' && sha256sum $*)"
}

# Leaves out what no remote file system, or none with small files in its metadata, can pass: du
# takes bind mounts into account on local file systems only (a source with a colon counts as
# remote); threshold.sh takes a directory to have no more blocks than a file of a few bytes.
applicable() {
    printf '%s\n' "$@" | grep -vE '^tests/du/(bind-mount-dir-cycle(-v2)?|threshold)\.sh$'
}

coreutils() {
    local archive tests kills=(12 2)
    archive=$(fetch_source coreutils) || { skip "coreutils: no network?"; return; }
    unpack_and_compare "$archive" coreutils
    cd "$A/build/$tree" || finish
    [ "$QUICK" = yes ] || kills=(10 1000)
    check "coreutils: configure" within 1800 ./configure -q || finish
    build_with_kills "coreutils: make -j2 goes on while the server dies" "${kills[@]}" make -j2 ||
        finish
    seen_alike coreutils src/ls src/cp src/libcoreutils.a
    if [ "$QUICK" = yes ]; then tests=$(echo tests/{mv,ln,mkdir,rmdir,touch}/*.sh)
    else
        tests=$(applicable \
            tests/{mv,ln,mkdir,rmdir,touch,rm,cp,ls,du,chmod,chown,chgrp,readlink,dd}/*.sh)
    fi
    check "coreutils: its own tests" within 3600 make \
        -j2 check SUBDIRS=. VERBOSE=no TESTS="$(echo $tests)"
    cd / && check "coreutils: remove the tree" within 900 rm -rf "$A/build"
    check "coreutils: it is gone on B at once" test ! -e "$B/build"
}

redis() {
    local archive
    archive=$(fetch_source redis) || { skip "redis: no network?"; return; }
    unpack_and_compare "$archive" redis
    cd "$A/build/$tree" || finish
    build_with_kills "redis: make -j2 goes on while the server dies" 10 1000 make -j2 MALLOC=libc ||
        finish
    seen_alike redis src/redis-server src/redis-cli
    check "redis: its own tests" within 3600 ./runtest --clients 2 --single unit/type/list \
        --single unit/type/hash \
        --single unit/aofrw --single integration/aof --single integration/rdb
    cd / && rm -rf "$A/build"
}

sqlite() {
    local archive
    archive=$(fetch_source sqlite3) || { skip "sqlite: no network?"; return; }
    unpack_and_compare "$archive" sqlite
    cd "$A/build/$tree" || finish
    check "sqlite: configure" within 1800 ./configure -q --disable-tcl || finish
    build_with_kills "sqlite: make -j2 goes on while the server dies" 10 1000 make -j2 sqlite3 ||
        finish
    seen_alike sqlite sqlite3 sqlite3.c
    check "sqlite: what was built works" within 60 ./sqlite3 :memory: 'select sqlite_version()'
    cd / && rm -rf "$A/build"
}

coreutils
[ "$QUICK" = yes ] || { redis; sqlite; }
finish
