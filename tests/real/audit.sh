#!/bin/bash
# What is written down of who did what, through a kill; what is changed of it; and no secret in it
# or in any log.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
base=$WORK/audit cell=$WORK/audit/cell at=$WORK/audit/tree far=$WORK/audit/far
trap 'within 60 "$RIALTO" umount "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1' EXIT
mkdir -p "$far"
as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
audit() { within 30 "$RIALTO" audit "$@" --dir "$cell"; }
pts() { within 30 "$RIALTO" pts "$@" --dir "$cell"; }
login() { printf '%s\n' "$2" |
    within 60 setpriv --reuid "$3" --regid "$3" --clear-groups "$RIALTO" login "$1" \
    --password-stdin --path "$far"; }
# shows TEXT OPTIONS...: it is written down within a while.
shows() {
    local text=$1 try; shift
    for try in $(seq 50); do audit show --json "$@" | grep -qF -- "$text" &&
        return 0; sleep 0.2; done
    audit show --json | tail -n 20; return 1
}

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell audit.test \
    --listen 127.0.0.1:0
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$cell/cell.toml")
pts createuser joe -uid 4711 > /dev/null
printf 'open sesame\n' | "$RIALTO" passwd joe --new-only --password-stdin --path "$at" > /dev/null
mkdir "$at/closed" && chmod 700 "$at/closed"
echo data > "$at/data"
check "a mount of a machine that nobody trusts" within 60 "$RIALTO" mount --daemon \
    --dir "$base/other" "$address" "$far"
login joe "close sesame" 4711 > /dev/null 2>&1
login joe "open sesame" 4711 > /dev/null
check "a new user is written down" shows '"request":"pts.Create"' --request administration
check "a password that was set" shows '"request":"auth.SetPassword"' --request authentication
check "a login" shows '"result":"done"' --request auth.Password
check "one that failed" shows '"result":"access denied"' --request auth.Password
for _ in $(seq 20); do
    as 4711 ls "$far/closed" > /dev/null 2>&1; as 4711 sh -c "echo x > $far/closed/x" \
        2> /dev/null; done
within 30 "$RIALTO" fence add --user joe --why 'an audit' --dir "$cell" > /dev/null
check "a fence" shows 'an audit' --request fence
# The mount has not seen it yet, so the server is asked.
as 4711 cat "$far/data" > /dev/null 2>&1
check "who was stopped by it, with the name's number" shows 'fenced off' --result fenced --who 1
check "refusals are counted" sh -c \
    "'$RIALTO' status --json --dir '$cell' | python3 -c '
import json, sys
refusals = json.load(sys.stdin)[\"report\"][\"refusals\"]
assert refusals[\"fenced\"] > 0, refusals'"
check "others by who they are" sh -c \
    "[ -z \"\$('$RIALTO' audit show --json --who nobody-such --dir '$cell')\" ]"
check "all of it as a table" says "pts.Create" 0 audit show
check "it is as it was written" says "lines in 1 files" 0 audit verify
within 30 "$RIALTO" fence remove \
    "$("$RIALTO" fence list --json --dir "$cell" | sed -n 's/.*"number":\([0-9]*\).*/\1/p')" \
    --dir "$cell" > /dev/null

# Killed, and half a line behind it.
kill -9 "$(head -n 1 "$cell/server.pid")"
printf '{"before":"12' >> "$cell/audit/audit-00000001.jsonl"
check "the server comes back" within 90 "$RIALTO" server --daemon --dir "$cell"
check "a torn line is said, and nothing is wrong" says "1 torn by a kill" 0 audit verify
pts createuser jim > /dev/null
check "it goes on in another file" shows \
    '"about":"{ new: NewPrincipal { kind: User, name: \"jim\"' --since 1h || audit show --json |
    tail -3

# Changed in a copy of the cell's directory, by who may write there.
tampered() { # WHAT COMMAND: the copy's log, changed, is found to be
    local copy=$base/copy
    rm -rf "$copy"; mkdir -p "$copy"; cp "$cell/cell.toml" "$copy/"; cp -a "$cell/audit" "$copy/"
    (cd "$copy/audit" && eval "$2") || return 1
    says "changed since it was written" 1 within 30 "$RIALTO" audit verify --dir "$copy"
}
check "a letter that was changed" tampered x \
    "sed -i '3s/joe/jim/;3s/User/user/' audit-00000001.jsonl"
check "a line that was taken out" tampered x "sed -i 4d audit-00000001.jsonl"
check "a line that was added" tampered x "sed -i '3{p}' audit-00000001.jsonl"
check "the last line taken out" tampered x "sed -i '\$d' audit-00000002.jsonl"
check "a file that was taken out" tampered x "rm audit-00000001.jsonl"
check "the last file taken out" tampered x "rm audit-00000002.jsonl"


# A head that was kept elsewhere, and a log that was made anew with other events and its own head.
head=$(audit head)
check "m13: the head is a hash" [ "$(printf %s "$head" | grep -cE '^[0-9a-f]{64}$')" = 1 ]
check "m13: the log has the line that was written down" says "lines in 2 files" 0 audit verify \
    --head "$head"
cat > "$base/forge.py" << 'PY'
import hashlib, json, pathlib, sys
before, at = "0" * 64, pathlib.Path(sys.argv[1])
for file in sorted(at.glob("audit-*.jsonl")):
    lines, rest = file.read_bytes().rsplit(b"\n", 1)
    out = []
    for line in lines.split(b"\n"):
        line = json.loads(line)
        line["before"] = before
        if "event" in line["what"] and line["what"]["event"]["request"] == "auth.Password":
            line["what"]["event"]["result"] = "done"
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()
        before = hashlib.sha256(text).hexdigest()
        out.append(text)
    file.write_bytes(b"\n".join(out) + b"\n" + rest)
head = {"file": int(file.name[6:14]), "line": len(out), "hash": before}
(at / "head.json").write_text(json.dumps(head))
PY
rm -rf "$base/copy"; mkdir -p "$base/copy"; cp "$cell/cell.toml" "$base/copy/"; cp \
    -a "$cell/audit" "$base/copy/"
python3 "$base/forge.py" "$base/copy/audit"
check "m13: one that was made anew is good by itself" says "lines in 2 files" 0 within 30 \
    "$RIALTO" audit verify --dir "$base/copy"
check "m13: and found with the head that was written down" says "no line has the hash $head" 1 \
    within 30 "$RIALTO" audit verify --dir "$base/copy" --head "$head"

# Copies to a socket of the machine.
cat > "$base/syslog.py" << 'PY'
import os, socket, sys
socket_path, out = sys.argv[1:]
there = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
there.bind(socket_path)
with open(out, "ab", buffering=0) as log:
    while True:
        log.write(there.recv(1 << 20) + b"\n")
PY
python3 "$base/syslog.py" "$base/log.sock" "$base/log" &
receiver=$!
printf '\n[audit]\nforward = "%s"\n' "$base/log.sock" >> "$cell/cell.toml"
check "m13: a server that forwards" sh -c \
    "timeout 90 '$RIALTO' down --dir '$cell' && timeout 90 '$RIALTO' up --dir '$cell' --at '$at'"
pts createuser jill > /dev/null
copied() { for _ in $(seq 50); do grep -q "$1" "$base/log" && return 0; sleep 0.2; done; return 1; }
line='^<85>1 [0-9TZ:.-]* [^ ]* rialto [0-9]* audit - audit.test'
check "m13: the other log has it" copied "$line audit-00000003.jsonl:[0-9]* {\"before\":.*jill"
check "m13: as the file has it" bash -c \
    "sed -n 's/.*audit-00000003.jsonl:[0-9]* //p' '$base/log' > '$base/sent' &&
        head -n 2 '$cell/audit/audit-00000003.jsonl' | cmp - <(head -n 2 '$base/sent')"
check "m13: the status shows it" says "forwarded to $base/log.sock" 0 within 30 "$RIALTO" status \
    --dir "$cell"
kill "$receiver"; wait "$receiver" 2> /dev/null
pts createuser jack > /dev/null
not_taken() { for _ in $(seq 50); do within 30 "$RIALTO" status --dir "$cell" |
    grep -q 'NOT TAKEN NOW' && return 0; sleep 0.2; done; return 1; }
check "m13: and that nobody takes it" not_taken
check "m13: which stops nothing" sh -c "timeout 30 '$RIALTO' pts createuser jon --dir '$cell'"

check "no password is in any log, record or audit file" sh \
    -c "! grep -rqF -e 'open sesame' -e 'close sesame' '$cell' '$base/other'"
token=$(as 4711 "$RIALTO" tokens --json --path "$far" | sed -n 's/.*"token":"\([0-9a-f]*\)".*/\1/p')
note "the token's number in the log: ${token:-not shown}"
check "and nobody but the server's user reads it" [ \
    "$(stat -c %a "$cell/audit" "$cell/audit/audit-00000001.jsonl" | tr '\n' ' ')" = "700 600 " ]
finish
