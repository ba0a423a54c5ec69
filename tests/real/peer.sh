#!/bin/bash
# A second implementation of the protocol (tests/peer), written from docs/spec/protocol.md: against
# the golden vectors, and beside a mount on files of a cell of its own, over its Unix socket, over
# TLS, and in clear text.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
peer=$(cd "$(dirname "$0")/../peer" && pwd)
golden=$(cd "$peer/../../crates/dafs/golden" && pwd)
base=$WORK/peer cell=$WORK/peer/cell at=$WORK/peer/tree
trap 'within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$base"
python() { PYTHONDONTWRITEBYTECODE=1 within "$@"; }
vectors() { python 120 /usr/bin/python3 "$peer/check_vectors.py" "$@"; }

check "every golden vector is decoded and encoded again" says "calls: " 0 vectors "$golden"

# differs TEXT FILE COMMAND...: with a file of the vectors changed by that command, which reads and
# writes it as sed -i does, the check fails and says that text.
differs() {
    local text=$1 file=$2
    shift 2
    rm -rf "$base/golden"
    cp -r "$golden" "$base/golden" && "$@" "$base/golden/$file" || return 1
    says "$text" 1 vectors "$base/golden"
}
check "a changed byte of a frame is noticed" differs "frames request-summed" frames.txt \
    sed -i '/^request-summed /s/6d657373616765/6d657373616764/'
check "a changed byte of a hello too" differs "hellos welcome" hellos.txt \
    sed -i '/^welcome /s/0500000000000000/0700000000000000/'
check "fields in another order too" differs "answers volume:" answers.txt \
    sed -i '/^volume /s/0300000000000000040/0400000000000000030/'
check "a call that is not known here too" differs "calls of-tomorrow" calls.txt \
    sed -i '$a of-tomorrow fe7f - -'
check "an answer without a vector too" differs "Sums has no vector" answers.txt sed -i '/^sums /d'
check "a form with two meanings too" differs "records done" records.txt \
    sed -i '/^done /s/0100/010000/'

check "a cell of its own, which allows clear text" within 90 "$RIALTO" up --dir "$cell" \
    --at "$at" --cell peer.test --clear --listen 127.0.0.1:0 --trust 127.0.0.0/8 --trust-root
port=$(sed -n 's/^listen = ".*:\([0-9]*\)"/\1/p' "$cell/cell.toml")
# They wait most of the time, the longest for the lease of a silent client.
works=()
for address in "unix:$cell/server.sock" "clear:127.0.0.1:$port" "tls:127.0.0.1:$port"; do
    python 300 /usr/bin/python3 "$peer/files.py" "$address" "$at" "$cell/keys/ca.pem" \
        > "$base/${address%%:*}.log" 2>&1 &
    works+=("${address%%:*} $!")
done
for work in "${works[@]}"; do
    read -r kind pid <<< "$work"
    wait "$pid"; ended=$?
    cat "$base/$kind.log"
    check "the work over $kind came to its end" [ $ended = 0 ]
    grep -q "^PASS peer: $kind: sessions end with a detach" "$base/$kind.log" ||
        fail "not everything was done over $kind"
done
check "everything stops in order" within 60 "$RIALTO" down --dir "$cell"
finish
