#!/bin/bash
# A machine becomes a server by one line of text, serves a volume, is removed, comes back with all
# that it had, and is refused by servers and by clients. The authority's key never leaves its place
# but by command.
. "$(dirname "$0")/../lib/real.sh"
base=$WORK/joins
mkdir -p "$base/client" "$base/tree" "$base/other" "$base/fresh"
A=$base/a B=$base/b C=$base/c STICK=$base/stick
end() {
    within 30 "$RIALTO" umount --lazy --dir "$base/client" "$base/tree" > /dev/null 2>&1
    for dir in "$C" "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done
}
trap end EXIT
cell() { within 60 "$RIALTO" cell --dir "$A" "$@"; }
vos() { within 60 "$RIALTO" vos --dir "$A" "$@"; }
up() { within 90 "$RIALTO" up --no-mount "$@"; }
in_time() { local _; for _ in $(seq 60); do "$@" > /dev/null 2>&1 &&
    return 0; sleep 0.5; done; "$@"; }
listen_of() { sed -n 's/^listen = "\(.*\)"/\1/p' "$1/cell.toml"; }

check "a cell" up --dir "$A" --cell joins.test --listen 127.0.0.1:0
code=$(cell invite --name two --for 10m)
check "its code has the cell's name" test "${code%%/*}" = joins.test
check "a code with a fault is not tried" says "not as it was printed" 1 within 30 "$RIALTO" up \
    --dir "$B" --join "${code%?}"
check "a machine joins by it" up --dir "$B" --join "$code"
check "without the authority's key" test ! -e "$B/keys/ca.key" -a -e "$B/keys/server.pem"
check "the line is used up" says "the code was used" 1 within 30 "$RIALTO" up --dir "$C" \
    --join "$code"
check "the list of invitations has its name" sh -c "'$RIALTO' cell invitations --dir '$A' |
    grep -q 'used .*two'"
check "doctor there knows who signs" sh -c "'$RIALTO' doctor --dir '$B' --only certificate |
    grep -q 'another server signs'"
check "it has a volume" vos create two vicep proj -maxquota 1G
check "a client mounts that" within 60 "$RIALTO" mount --daemon --dir "$base/client" --volume proj \
    "$(listen_of "$A")" "$base/tree"
check "and sees the tree" within 20 stat "$base/tree"
check "a new key of it is certified by the other" "$RIALTO" keys rotate certificate --dir "$B"
key() { "$RIALTO" keys list --dir "$B" --json | grep -o '"server":"[^"]*"'; }
before=$(key)
changed() { [ "$(key)" != "$before" ] && grep -q 'shows a new key' "$B/logs/server.log"; }
check "and takes the place of the old one" in_time changed
check "it is a server still" in_time "$RIALTO" vos --dir "$B" listvol -server two

# Removed: it stays away, whatever it had.
cp -a "$B/keys" "$base/stolen"
check "a server with a volume is not removed" says "read-write site of 1 volumes: proj" 1 cell \
    remove-server two
check "dry run removes nothing" says "would be removed: two" 0 cell remove-server two --lost -n
check "--lost says what is lost" says "lost: proj" 0 cell remove-server two --lost
check "the list has it no more" test "$(vos listaddrs --json | grep -c '"two"')" -eq 0
says_so() { grep -q 'no longer one of its cell' "$B/logs/server.log"; }
check "it says so in its log" in_time says_so
check "the mount heard of it" in_time grep -q sha256 "$base/client/withdrawn_keys"
check "nothing is served there" refused within 5 ls "$base/tree/anything"
check "it is stopped" within 60 "$RIALTO" down --dir "$B"
check "and comes back" up --dir "$B"
other() { within 30 "$RIALTO" mount --dir "$1" --volume proj "$(listen_of "$B")" "$base/other"; }
check "a client that knows refuses it" says "the key of this server was withdrawn" 1 other \
    "$base/client"
check "it serves no other client either" says "no longer one of its cell" 1 other "$base/fresh"
check "no server lists volumes for it" refused within 30 "$RIALTO" vos --dir "$B" create two vicep x
check "its code lets nothing in" says "the code was used" 1 within 60 "$RIALTO" up --dir "$C" \
    --join "$code" --server two
check "it is stopped again" within 60 "$RIALTO" down --dir "$B"
code=$(cell invite --name two)
check "a new invitation lets it in again" up --dir "$B" --join "$code"
check "with a key of its own" test "$(vos listaddrs --json | grep -c '"two"')" -eq 1

# The authority off line: files go out and come back.
check "the authority's key goes away" says "no longer here" 0 "$RIALTO" keys authority --dir "$A" \
    --move-to "$STICK"
check "it is there and on no server" test -e "$STICK/ca.key" -a ! -e "$A/keys/ca.key" -a \
    ! -e "$B/keys/ca.key"
code=$(cell invite --name three --role file)
check "who joins waits for a signature" says "waits for a signature" 1 within 60 "$RIALTO" up \
    --dir "$C" --join "$code"
check "which is given elsewhere" says "server three of joins.test" 0 "$RIALTO" cell sign \
    "$C/keys/server.request" --authority "$STICK" --out "$base/signed"
check "and is not for others" refused "$RIALTO" keys accept --dir "$B" "$base/signed"
check "it takes it" "$RIALTO" keys accept --dir "$C" "$base/signed"
check "and starts" up --dir "$C"
check "as a server" in_time says '"three"' 0 vos listaddrs --json
check "its role is shown" sh -c "'$RIALTO' vos --dir '$A' listaddrs --json |
    grep '\"three\"' | grep -q '\"roles\":\"file\"'"
check "it may have volumes" vos create three vicep kept
check "and administers nothing elsewhere" refused within 30 "$RIALTO" vos --dir "$C" create two \
    vicep taken
check "as another server may" in_time "$RIALTO" vos --dir "$B" create three vicep given

# A server that was away for longer than its certificate is valid.
check "the second is away" within 60 "$RIALTO" down --dir "$B"
if command -v faketime > /dev/null; then
    check "for too long, so it says what to do" says "'rialto keys request'" 1 within 60 \
        faketime '+15 days' "$RIALTO" up --no-mount --dir "$B"
else
    skip "faketime is missing, so no certificate ends"
fi
check "it asks for a new one" "$RIALTO" keys request --dir "$B"
check "which the authority signs" says "server two of joins.test" 0 "$RIALTO" cell sign \
    "$B/keys/server.request" --authority "$STICK" --out "$base/signed.two"
check "and it takes" "$RIALTO" keys accept --dir "$B" "$base/signed.two"
check "and starts with" up --dir "$B"
for dir in "$C" "$B" "$A"; do check "down" within 60 "$RIALTO" down --dir "$dir"; done
grep -l "panicked" "$A"/logs/* "$B"/logs/* "$C"/logs/* 2> /dev/null && fail "a server panicked"
finish
