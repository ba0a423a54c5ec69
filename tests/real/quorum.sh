#!/bin/bash
# The cell's database is in etcd, and more than half of its members are down for QUORUM_SECS [300;
# with --quick 20]. Users whom the servers know work on all the time; what needs the database is
# refused and says why; and when the members return, everything goes on by itself.
. "$(dirname "$0")/../lib/real.sh"
. "$(dirname "$0")/../lib/etcd.sh"
needs_cell
needs_root
command -v etcd > /dev/null && command -v openssl > /dev/null ||
    { fail "etcd and openssl are there: 'scripts/setup.sh test' installs them"; finish; }
[ "$QUICK" = yes ] && usual=20 || usual=300
secs=${QUORUM_SECS:-$usual}
base=$WORK/quorum
A=$base/a B=$base/b tree=$base/tree
mkdir -p "$tree" && chmod 755 "$WORK" "$base"
worker=
end() {
    touch "$base/over"
    [ -z "$worker" ] || wait "$worker"
    within 60 "$RIALTO" umount --lazy --dir "$A" "$tree" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$B" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$A" > /dev/null 2>&1
    end_members
    wait 2> /dev/null
}
trap end EXIT
pts() { within 30 "$RIALTO" pts "$@" --dir "$A"; }
vos() { within 90 "$RIALTO" vos --dir "$A" "$@"; }
as() { local uid=$1; shift; timeout 20 setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }
soon() { local until=$((SECONDS + 60))
    until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $until ] || return 1; sleep 0.2; done; }

check "certificates of the members" members "$base" || finish
for number in 0 1 2; do member $number; done
born() { within 90 "$RIALTO" up --no-mount --dir "$A" --cell quorum.test --listen 127.0.0.1:0 \
    --server one --trust 127.0.0.0/8 "${up_etcd[@]}"; }
check "a cell in etcd" soon born || finish
within 30 "$RIALTO" cell invite --dir "$A" --name two > "$base/code" 2> "$base/log"
check "a second server" within 90 "$RIALTO" up --dir "$B" \
    --join "$(grep -m 1 / "$base/code")" "${up_etcd[@]}"
for user in joe:4711 jim:4712 jane:4713; do
    pts createuser "${user%:*}" -uid "${user#*:}" > /dev/null; done
check "a volume at the second server" soon vos create two vicep proj
check "a mount" within 60 "$RIALTO" mount --daemon --dir "$A" "unix:$A/server.sock" "$tree"
check "with the volume" soon within 30 "$RIALTO" fs mkmount "$tree/vol" proj
# A server must know its caller's principal for an access list.
check "which has access lists" vos setfields proj -model acl
listed=$tree/vol
check "which lets these users in" within 30 "$RIALTO" fs setacl "$listed" \
    joe rlidwk jim rlidwk jane rlidwk
for uid in 4711 4712; do as $uid sh -c "echo 0 > '$listed/$uid'"; done

# The users write, sync and read until it is over; each line that was synced is counted.
work() {
    local uid=$1 count=0
    until [ -e "$base/over" ]; do
        if as "$uid" sh -c "echo $((count + 1)) >> '$listed/$uid' &&
            sync '$listed/$uid' && grep -qx $count '$listed/$uid' &&
            echo $count > '$listed/$uid.new' && mv '$listed/$uid.new' '$listed/$uid.last'"
        then count=$((count + 1)); else echo "$uid: failed at $((count + 1))" >> "$base/errors"; fi
        sleep 0.1
    done
    echo "$count" > "$base/count.$uid"
}
work 4711 & first=$!
work 4712 & worker=$first\ $!
lose 0
lose 1
until_over=$((SECONDS + secs))
sleep 2
rounds=0
while [ $rounds -lt 3 ] || [ $SECONDS -lt $until_over ]; do
    rounds=$((rounds + 1))
    says "quorum" 1 pts createuser "late$rounds" >> "$base/refusals" 2>&1 ||
        echo "a user was not refused, or without the reason" >> "$base/errors"
    says "quorum" 1 vos create one vicep "late$rounds" >> "$base/refusals" 2>&1 ||
        echo "a volume was not refused, or without the reason" >> "$base/errors"
    as 4713 sh -c "touch '$listed/4713' && sync '$listed/4713'" 2>> "$base/refusals" &&
        echo "a user whom no server knows was served" >> "$base/errors"
    sleep 3
done
check "doctor says why" says "has no quorum" 0 sh -c "'$RIALTO' doctor --dir '$A'; true"
member 0
member 1
check "the members return: users are made" soon pts createuser again
check "and volumes" soon vos create one vicep after
check "a user who was unknown is served" soon as 4713 touch "$listed/4713"
touch "$base/over"
wait $worker
worker=
note "$secs s without a quorum, $rounds rounds of refusals; lines written by each user:" \
    "$(cat "$base"/count.* | tr '\n' ' ')"
check "users who are known wrote all the time" [ ! -s "$base/errors" ]
[ ! -s "$base/errors" ] || sed 's/^/     /' "$base/errors" | head -n 10
for uid in 4711 4712; do
    check "every line of $uid is there" eval \
        "[ \"\$(tail -n 1 '$listed/$uid')\" = \"\$(cat '$base/count.$uid')\" ] &&
        [ \"\$(cat '$base/count.$uid')\" -gt $secs ]"
done
check "what was refused was not made" refused says late 0 vos listvldb
finish
