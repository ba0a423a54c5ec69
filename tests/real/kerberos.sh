#!/bin/bash
# Users of a Kerberos realm: MIT's KDC with two realms, a cell with a keytab, and a machine that the
# cell does not trust.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
command -v krb5kdc > /dev/null || PATH=$PATH:/usr/sbin
for tool in krb5kdc kdb5_util kadmin.local kinit kdestroy; do
    command -v $tool > /dev/null ||
        { skip "$tool is missing (Debian: krb5-kdc, krb5-admin-server, krb5-user)"; finish; }
done
base=$WORK/kerberos cell=$WORK/kerberos/cell at=$WORK/kerberos/tree far=$WORK/kerberos/far \
    realm=$WORK/kerberos/realm kdc=''
cleanup() {
    within 60 "$RIALTO" umount --lazy --dir "$base/all" "$base/afs" > /dev/null 2>&1
    within 60 "$RIALTO" umount "$far" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
    [ -z "$kdc" ] || { kill "$kdc"; wait "$kdc"; } 2> /dev/null
}
trap cleanup EXIT
mkdir -p "$far" "$realm/users"
chmod 1777 "$realm/users"

# A port of this machine that nobody has.
free_port() {
    python3 -c 'import socket
free = socket.socket()
free.bind(("127.0.0.1", 0))
print(free.getsockname()[1])'
}
own=$(free_port) other=$(free_port)
cat > "$realm/krb5.conf" << CONF
[libdefaults]
default_realm = KRB.TEST
dns_lookup_kdc = false
dns_lookup_realm = false
rdns = false
clockskew = 2
[realms]
KRB.TEST = { 
kdc = 127.0.0.1:$own
}
OTHER.TEST = { 
kdc = 127.0.0.1:$other
}
CONF
cat > "$realm/kdc.conf" << CONF
[realms]
KRB.TEST = { 
kdc_listen = 127.0.0.1:$own
kdc_tcp_listen = 127.0.0.1:$own
database_name = $realm/own
key_stash_file = $realm/own.stash
acl_file = $realm/acl
max_renewable_life = 1d
}
OTHER.TEST = { 
kdc_listen = 127.0.0.1:$other
kdc_tcp_listen = 127.0.0.1:$other
database_name = $realm/other
key_stash_file = $realm/other.stash
acl_file = $realm/acl
}
CONF
export KRB5_CONFIG=$realm/krb5.conf KRB5_KDC_PROFILE=$realm/kdc.conf
admin() { kadmin.local -r "$1" -q "$2" > /dev/null; }
make_realms() {
    kdb5_util create -r KRB.TEST -s -P "master key" &&
        kdb5_util create -r OTHER.TEST -s -P "master key" &&
        admin KRB.TEST "addprinc -maxrenewlife 1d -pw opensesame joe" &&
        admin KRB.TEST "addprinc -pw opensesame ann" &&
        admin KRB.TEST "addprinc -maxrenewlife 1d -randkey rialto/krb.test" &&
        admin KRB.TEST "ktadd -k $base/keytab rialto/krb.test" &&
        admin KRB.TEST "modprinc -maxrenewlife 1d krbtgt/KRB.TEST" &&
        admin OTHER.TEST "addprinc -pw opensesame bob" &&
        admin OTHER.TEST "addprinc -pw opensesame eve" &&
        admin KRB.TEST "addprinc -pw cross krbtgt/KRB.TEST@OTHER.TEST" &&
        admin OTHER.TEST "addprinc -pw cross krbtgt/KRB.TEST@OTHER.TEST"
}
check "two realms with users and a service" make_realms
krb5kdc -n -r KRB.TEST -r OTHER.TEST -P "$realm/pid" > "$realm/log" 2>&1 &
kdc=$!
listens() { for _ in $(seq 200); do (: < "/dev/tcp/127.0.0.1/$own") 2> /dev/null &&
    return 0; sleep 0.1; done; return 1; }
check "a key distribution center" listens

# Users of the far machine may not see where this program was built.
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto" && RIALTO=$base/rialto
# A user of the far machine, with a credential cache of his own.
as() { local uid=$1; shift; KRB5CCNAME=FILE:$realm/users/$uid setpriv --reuid "$uid" \
    --regid "$uid" --clear-groups "$@"; }
kinit_as() { local uid=$1; shift; printf 'opensesame\n' | as "$uid" kinit "$@" > /dev/null; }
login() { as "$1" timeout 60 "$RIALTO" login --kerberos --path "$far" "${@:2}"; }

check "a cell of its own" within 90 "$RIALTO" up --dir "$cell" --at "$at" --cell krb.test \
    --listen 127.0.0.1:0
port=$(sed -n 's/^listen = ".*:\([0-9]*\)"/\1/p' "$cell/cell.toml")
check "two of them are users of it" sh -c "'$RIALTO' pts createuser joe -uid 4711 --dir '$cell'"
check "he has a directory" sh -c \
    "mkdir '$at/joe' && chown 4711:4711 '$at/joe' && chmod 700 '$at/joe'"
check "a mount of a machine that nobody trusts" within 60 "$RIALTO" mount --daemon \
    --dir "$base/client" "127.0.0.1:$port" "$far"

check "without a ticket" says "'kinit' gets one" 1 login 4711
kinit_as 4711 -l 1h joe
check "a cell without a keytab takes none" says "accepts no tickets" 1 login 4711
restart() { within 90 "$RIALTO" down --dir "$cell" &&
    within 90 "$RIALTO" up --dir "$cell" --at "$at"; }
printf '\n[kerberos]\nkeytab = "../nothing"\n' >> "$cell/cell.toml"
check "a keytab that is not there is said" says "reading the keytab" 1 restart
sed -i 's|"../nothing"|"../keytab"|' "$cell/cell.toml"
check "a cell with one" restart

check "a ticket logs in" says "logged in to krb.test as joe" 0 login 4711
check "tokens say so" says "by kerberos" 0 as 4711 "$RIALTO" tokens --path "$far"
check "he writes" as 4711 sh -c "echo there > '$far/joe/file'"
check "another user of that machine is nobody" says "Permission denied" 1 as 4712 sh \
    -c "exec 2>&1; cat '$far/joe/file'"
check "he logs out" as 4711 "$RIALTO" logout --path "$far"
check "and is nobody with the next request" says "Permission denied" 2 as 4711 sh \
    -c "exec 2>&1; echo gone > '$far/joe/new'"
# OpenAFS's klog.krb5 gets the ticket too, by the password of the realm, and leaves none.
ln -s "$RIALTO" "$base/klog.krb5"
krb5() { (cd "$far" && TMPDIR=$realm/users KRB5CCNAME=FILE:$realm/users/none USER=joe \
    setpriv --reuid 4711 --regid 4711 --clear-groups timeout 60 "$base/klog.krb5" "$@"); }
check "klog.krb5 with a wrong password" says "kinit got none" 1 eval "printf 'wrong\n' | krb5 -pipe"
check "makes no token" says "no token" 1 as 4711 "$RIALTO" tokens --path "$far"
check "klog.krb5 logs in" says "logged in to krb.test as joe" 0 eval \
    "printf 'opensesame\n' | krb5 -pipe"
check "and leaves no ticket" [ ! -e "$realm/users/none" ]
check "nor a cache in /tmp" [ -z "$(find "$realm/users" -maxdepth 1 -name 'rialto-ticket*')" ]
as 4711 "$RIALTO" logout --path "$far"
check "but with -tmp" eval "printf 'opensesame\n' | krb5 -pipe -tmp joe > /dev/null &&
    [ -s '$realm/users/none' ]"
as 4711 "$RIALTO" logout --path "$far"
# A login without a mount, in a file of the user.
install -d -o 4711 -m 700 "$realm/alone"
alone() { as 4711 timeout 60 env "HOME=$realm/alone" "RIALTO_TOKENS=$realm/alone/tokens" \
    "$RIALTO" "$@"; }
check "a ticket logs in without a mount" says "logged in to krb.test as joe" 0 alone login \
    --kerberos --via "127.0.0.1:$port"
check "by Kerberos" says "by kerberos" 0 alone tokens --cell krb.test
check "and he makes a group" says "group joe:alone" 0 alone pts creategroup joe:alone \
    --cell krb.test
check "a ticket for another service is none" says "getting a Kerberos ticket" 1 login 4711 \
    --service rialto/elsewhere
kinit_as 4712 ann
check "who is unknown to the cell is told so" says "no such user" 1 login 4712
check "locked by an administrator" within 30 "$RIALTO" pts setfields joe -locked yes --dir "$cell"
check "no ticket helps" says "does not accept the ticket" 1 login 4711
check "let in again" within 30 "$RIALTO" pts setfields joe -locked no --dir "$cell"
if command -v faketime > /dev/null; then
    check "a clock that is wrong" says "clocks" 1 as 4711 faketime '+20 minutes' timeout 60 \
        "$RIALTO" login --kerberos --path "$far"
else
    skip "a clock that is wrong: faketime is missing"
fi

# Writes a line and syncs it, five times a second, until somebody refuses; counts the lines that
# were taken.
cat > "$base/writer.py" << 'PY'
import os, sys, time
file, count, until = sys.argv[1], 0, time.time() + float(sys.argv[2])
fd = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
try:
    while time.time() < until:
        os.write(fd, b"%07d\n" % count)
        os.fsync(fd)
        count += 1
        time.sleep(0.2)
except OSError as error:
    print(count, error.strerror)
    sys.exit(1)
print(count, "written")
PY
kept() { [ "$(wc -l < "$at/joe/$1")" -ge "$2" ] && seq -f %07g 0 $(($2 - 1)) |
    cmp - <(head -n "$2" "$at/joe/$1"); }

# Meanwhile the same in another cell of a mount, and in a session, each with tickets of its own.
afs=$base/afs
mkdir "$afs" && printf '["krb.test"]\nservers = ["127.0.0.1:%s"]\n' "$port" > "$base/cells.toml"
check "a mount of all cells" within 60 "$RIALTO" mount --dynroot --daemon --dir "$base/all" \
    --cells "$base/cells.toml" "$afs"
in_cell() { # in_cell COMMAND...: the user 4711 with other tickets
    KRB5CCNAME=FILE:$realm/users/4711.cell setpriv --reuid 4711 --regid 4711 --clear-groups "$@"
}
printf 'opensesame\n' | in_cell kinit -l 15s -r 10m joe > /dev/null
check "a login to a cell there" says "logged in to krb.test as joe" 0 in_cell "$RIALTO" login \
    --kerberos --path "$afs/krb.test"
in_cell /usr/bin/python3 "$base/writer.py" "$afs/krb.test/joe/cell" 40 > "$base/said.cell" 2>&1 &
cells_writer=$!
session_writer=
if as 4711 unshare --user --map-current-user --mount true 2> /dev/null; then
    KRB5CCNAME=FILE:$realm/users/4711.session setpriv --reuid 4711 --regid 4711 \
        --clear-groups "$RIALTO" pagsh --path "$far" -c "
        printf 'opensesame\n' | kinit -l 15s -r 10m joe > /dev/null &&
        '$RIALTO' login --kerberos --path '$far' > /dev/null &&
        exec /usr/bin/python3 '$base/writer.py' '$far/joe/session' 40" > "$base/said.session" 2>&1 &
    session_writer=$!
else
    skip "a session: users have no name spaces of their own here"
fi

kinit_as 4711 -l 15s -r 10m joe
check "a short ticket that can be renewed" says "logged in" 0 login 4711
said=$(as 4711 /usr/bin/python3 "$base/writer.py" "$far/joe/long" 45 2>&1) &&
    pass "a write that is longer than it ($said)" || fail "a write that is longer than it: $said"
check "nothing of it is lost" kept long "${said%% *}"
wait $cells_writer && pass "one in another cell of a mount ($(cat "$base/said.cell"))" ||
    fail "one in another cell of a mount: $(cat "$base/said.cell")"
if [ -n "$session_writer" ]; then
    wait "$session_writer" && pass "one in a session ($(cat "$base/said.session"))" ||
        fail "one in a session: $(cat "$base/said.session")"
fi
check "it is unmounted" within 60 "$RIALTO" umount --dir "$base/all" "$afs"
check "the token is a newer one" says "by kerberos" 0 as 4711 "$RIALTO" tokens --path "$far"

kinit_as 4711 -l 12s joe
check "a short ticket that cannot" says "logged in" 0 login 4711
check "without a mount too" says "logged in" 0 alone login --kerberos --via "127.0.0.1:$port"
said=$(as 4711 /usr/bin/python3 "$base/writer.py" "$far/joe/short" 60 2>&1) &&
    fail "a write went on without a ticket: $said" ||
    pass "a write that is longer than it ends ($said)"
check "and says why" sh -c "echo '$said' | grep -q 'Permission denied\|Key has expired'"
check "what was taken is kept" kept short "${said%% *}"
check "a login without a mount that has ended says so" says "the login has ended" 1 alone pts \
    creategroup joe:late --cell krb.test
check "and shows so" says "it has ended" 1 alone tokens --cell krb.test
kinit_as 4711 -l 1h joe
check "with the next ticket" says "logged in" 0 login 4711
check "it goes on" as 4711 sh -c "echo more >> '$far/joe/short'"

sed -i 's|^keytab.*|&\ncreate = true|' "$cell/cell.toml"
check "a cell that makes its users" restart
check "one of the own realm" says "as ann" 0 login 4712
check "a ticket of a service" sh -c \
    "KRB5CCNAME=FILE:$realm/users/4714 kinit -k -t '$base/keytab' rialto/krb.test &&
        chown 4714 $realm/users/4714"
check "makes no user" says "knows no such user" 1 login 4714

# Users of another realm. Lists of the volume name one group for the cell's own users and one for
# theirs.
pts() { within 30 "$RIALTO" pts "$@" --dir "$cell"; }
guests=$far/guests
check "a volume for guests" within 60 "$RIALTO" vos create real.guests --dir "$cell"
check "where lists decide" within 60 "$RIALTO" vos setfields real.guests -model acl \
    -acl system:authuser rl --dir "$cell"
check "in the tree" within 60 "$RIALTO" fs mkmount "$at/guests" real.guests
check "m12: a ticket of another realm" kinit_as 4713 bob@OTHER.TEST
check "m12: the cell is not open to that realm" says "creategroup system:authuser@REALM" 1 login \
    4713
check "m12: nor is a user made" says "no such user" 1 pts examine bob@other.test
check "m12: an administrator opens it" pts creategroup system:authuser@other.test
check "m12: its user logs in" says "as bob@other.test" 0 login 4713
check "m12: and is a user now" says "bob@other.test" 0 pts examine bob@other.test
check "m12: system:authuser has the cell's own user" within 30 setpriv --reuid 4712 --regid 4712 \
    --clear-groups ls "$guests"
check "m12: and not the one of another realm" says "Permission denied" 2 as 4713 ls "$guests"
check "m12: who is given something as a user of it" within 30 "$RIALTO" fs setacl "$at/guests" \
    system:authuser@other.test rl
check "m12: and has it at once" as 4713 ls "$guests"
check "m12: without the group" pts delete system:authuser@other.test
check "m12: it is gone at once" says "Permission denied" 2 as 4713 ls "$guests"
check "m12: a new one" pts creategroup system:authuser@other.test
check "m12: with room for nobody" pts setfields system:authuser@other.test -groupquota 0
check "m12: another user of the realm" kinit_as 4715 eve@OTHER.TEST
check "m12: is told that there is no more room" says "makes no more users of your realm" 1 login \
    4715
check "no key or password is in any log" sh -c "! grep -rqF opensesame '$cell' '$base/client'"
finish
