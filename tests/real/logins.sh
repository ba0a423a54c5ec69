#!/bin/bash
# docs/operations/logins.md: its files and commands, in order, on a private copy of /etc; and what
# other users of the machine, wrong passwords and a dead server make of them.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
for tool in pamtester sshd ssh su getent; do
    PATH=$PATH:/usr/sbin command -v $tool > /dev/null ||
        { skip "$tool is missing (Debian: pamtester, openssh-server, openssh-client)"; finish; }
done
if [ -z "${PRIVATE_ETC:-}" ]; then
    PRIVATE_ETC=yes exec unshare --mount --propagation private "$0"
fi
# Programs find the only tree that is mounted; those of other tests are elsewhere.
drop_other_mounts
page=$(dirname "$0")/../../docs/operations/logins.md
pages=$(dirname "$0")/../lib/page.py
base=$WORK/logins cell=$WORK/logins/cell
address=127.0.0.1:$(python3 -c 'import socket
free = socket.socket()
free.bind(("127.0.0.1", 0))
print(free.getsockname()[1])')
cleanup() {
    [ ! -e "$base/sshd.pid" ] || kill "$(cat "$base/sshd.pid")"
    [ ! -e "$base/kdc.pid" ] || kill "$(cat "$base/kdc.pid")"
    [ ! -e "$base/stopped" ] || kill -CONT "$(cat "$base/stopped")"
    within 60 "$RIALTO" umount --lazy --dir "$base/client" /mnt/tree > /dev/null 2>&1
    within 60 "$RIALTO" umount --lazy --dir "$cell" "$base/own" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$cell" > /dev/null 2>&1
}
trap cleanup EXIT
mkdir -p "$base/own" "$base/mnt"
chmod 755 "$base"
# The users' names, the services of PAM and the configuration of sshd, for this test alone.
cp -a /etc "$base/etc.copy" 2> /dev/null
mount --bind "$base/etc.copy" /etc
mount --bind "$base/mnt" /mnt
mount -t tmpfs tmpfs /home
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /run/user 2> /dev/null || mkdir -p /run/user
mkdir -p /mnt/tree /home/joe /home/jim /etc/ssh/sshd_config.d /run/sshd
# The program where the page has it, which other users may run.
mkdir "$base/upper" "$base/work"
mount -t overlay -o "lowerdir=/usr/bin,upperdir=$base/upper,workdir=$base/work" overlay /usr/bin ||
    { skip "no overlay can be mounted over /usr/bin"; finish; }
install -m 755 "$RIALTO" /usr/bin/rialto
# No other test has processes of these uids: they would keep the tokens of a closed session.
hash=$(openssl passwd -6 'open sesame')
for user in joe:7311 jim:7312; do
    name=${user%:*} uid=${user#*:}
    echo "$name:x:$uid:$uid::/home/$name:/bin/bash" >> /etc/passwd
    echo "$name:x:$uid:" >> /etc/group
    echo "$name:$hash:20000:0:99999:7:::" >> /etc/shadow
    chown "$uid:$uid" "/home/$name" && chmod 700 "/home/$name"
done
( umask 077; echo 'open sesame' > /home/joe/job.password; chown joe /home/joe/job.password )

check "a cell" within 90 rialto up --no-mount --dir "$cell" --cell example.org --listen "$address"
check "a mount of root's" within 60 rialto mount --daemon --dir "$base/client" "$address" /mnt/tree
own() { within 30 rialto "$@" --dir "$cell"; }
own pts createuser joe -uid 7311 > /dev/null
printf 'open sesame\n' | own passwd joe --new-only --password-stdin > /dev/null
check "the server's own mount" within 60 rialto mount --daemon --dir "$cell" \
    "unix:$cell/server.sock" "$base/own"
mkdir "$base/own/joe" && chown 7311:7311 "$base/own/joe" && chmod 700 "$base/own/joe"
mkdir -p /etc/rialto
within 30 rialto fs newcell example.org "$address" || fail "no list of cells"
as() { local user=$1; shift; within 60 setpriv --reuid "$user" --regid "$user" --clear-groups \
    env -i "HOME=/home/$user" PATH=/usr/bin:/bin "USER=$user" SHELL=/bin/bash "$@"; }
token() { as "$1" rialto tokens --path /mnt/tree > /dev/null; }
gone() { as "$1" rialto logout --path /mnt/tree; }
pam() { printf '%s\n' "$3" | within 60 pamtester "$1" "$2" "${@:4}"; }
# The blocks of the page, in order.
number=0
while read -r kind first rest; do
    case $kind in
        pam | conf)
            mkdir -p "$(dirname "$first")"
            python3 "$pages" "$page" show $number > "$first" ;;
        sh)
            # Of the user's own service manager: tests/guide.sh has one.
            [ "$rest" != manager ] || { number=$((number + 1)); continue; }
            python3 "$pages" "$page" show $number > "$base/block"
            chmod 755 "$base/block"
            # A login for the first of them; jobs have none of their own.
            [ "$number" -gt 4 ] && [ -z "${began:-}" ] && { began=yes
                as "$first" rialto login joe --password-stdin --cell example.org \
                    < /home/joe/job.password > /dev/null; cd / || exit 1; }
            if [ "$rest" = fails ]; then
                check "block $number of the page fails as it says" refused as "$first" \
                    env RIALTO_CELL= bash -e "$base/block"
            else
                check "block $number of the page runs" as "$first" bash -e "$base/block"
            fi ;;
        *) fail "block $number is neither run nor has a reason: $kind" ;;
    esac
    number=$((number + 1))
done < <(python3 "$pages" "$page" list)
check "the page has its blocks" [ "$number" -ge 9 ]
check "the job wrote as its user" [ "$(stat -c %u "$base/own/joe/result")" = 7311 ]
as joe rialto logout > /dev/null 2>&1
rm -f /home/joe/job.password

# Passwords.
check "no token before" refused token joe
check "a login by password" pam rialto-example joe 'open sesame' authenticate open_session
check "gets a token" token joe
check "which writes" as joe sh -c 'echo x > /mnt/tree/joe/new'
check "another user has none" refused token jim
check "nor reads with it" refused as jim cat /mnt/tree/joe/new
check "the last session's end" pam rialto-example joe '' close_session
check "takes it away" refused token joe
pam rialto-example joe 'open sesame' authenticate > /dev/null 2>&1
setpriv --reuid joe --regid joe --clear-groups sleep 60 &
sleeper=$!
for _ in $(seq 100); do pgrep -u joe sleep > /dev/null && break; sleep 0.05; done
pam rialto-example joe '' close_session > /dev/null 2>&1
check "but not while a process of the user is there" token joe
kill $sleeper; wait $sleeper 2> /dev/null; gone joe
check "a wrong password is none" refused pam rialto-example joe 'close sesame' authenticate
check "and makes no token" refused token joe
# The machine's password and the cell's differ: the login's own rules decide.
printf 'another one\n' | own passwd joe --new-only --password-stdin > /dev/null
check "the machine's password lets in" pam rialto-example joe 'open sesame' authenticate
check "without a token" refused token joe
check "where the cell decides, its password lets in" pam rialto-only joe 'another one' authenticate
check "with a token" token joe
gone joe
check "and the machine's does not" refused pam rialto-only joe 'open sesame' authenticate
printf 'open sesame\n' | own passwd joe --new-only --password-stdin > /dev/null
check "a user whom the cell does not know has a login" pam rialto-example jim 'open sesame' \
    authenticate
check "and no token" refused token jim
check "nobody else may use it" says "only a login program" 1 as jim env PAM_USER=joe \
    PAM_TYPE=auth rialto login --pam
check "root gets no token" says "root gets no token" 1 env PAM_USER=root PAM_TYPE=auth rialto \
    login --pam
for name in '' -x '--path=/' 'joe:x' 7311; do
    check "'$name' is no user" refused env "PAM_USER=$name" PAM_TYPE=auth rialto login --pam
done
# su, whose real user is another one than root; and what others see of it.
cp /etc/pam.d/rialto-example /etc/pam.d/su
su_joe() { printf 'open sesame\n' | as jim su joe -c "$1"; }
check "su from another user" su_joe 'rialto tokens --path /mnt/tree'
gone joe 2> /dev/null

# The password is in no command line and no environment, from its begin to its end.
check "the password is seen nowhere" python3 - "$base" << 'PY'
import os, subprocess, sys, time
login = subprocess.Popen(["/usr/bin/rialto", "login", "--pam"], stdin=subprocess.PIPE,
    env={"PAM_USER": "joe", "PAM_TYPE": "auth", "PATH": "/usr/bin:/bin"})
seen = []
def look():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{what}", "rb") as file:
                    if b"open sesame" in file.read():
                        seen.append((pid, what))
            except OSError:
                pass
look()
login.stdin.write(b"open sesame\0")
login.stdin.close()
while login.poll() is None:
    look()
assert login.returncode == 0, login.returncode
assert not seen, seen
PY
gone joe

# sshd.
ssh-keygen -q -t ed25519 -N '' -f "$base/host" > /dev/null
cat /etc/ssh/sshd_config.d/rialto.conf > "$base/sshd_config"
port=$(python3 -c 'import socket
free = socket.socket()
free.bind(("127.0.0.1", 0))
print(free.getsockname()[1])')
printf 'Port %s\nListenAddress 127.0.0.1\nHostKey %s\nPidFile %s\nStrictModes no\n' "$port" \
    "$base/host" "$base/sshd.pid" >> "$base/sshd_config"
check "an sshd with the page's lines" within 30 /usr/sbin/sshd -f "$base/sshd_config" \
    -E "$base/sshd.log"
for _ in $(seq 100); do [ -e "$base/sshd.pid" ] && break; sleep 0.05; done
printf '#!/bin/sh\necho "$TEST_PASSWORD"\n' > "$base/askpass"; chmod 755 "$base/askpass"
over_ssh() { # PASSWORD COMMAND
    TEST_PASSWORD=$1 SSH_ASKPASS=$base/askpass SSH_ASKPASS_REQUIRE=force within 60 ssh -p "$port" \
        -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
        -o NumberOfPasswordPrompts=1 -o PreferredAuthentications=password,keyboard-interactive \
        joe@127.0.0.1 "$2" < /dev/null
}
check "a login over ssh has a token" says "by password" 0 over_ssh 'open sesame' \
    'rialto tokens --path /mnt/tree'
# A look as this user would be a process of the user, with which the token stays.
ended() { for _ in $(seq 100); do
    pgrep -P "$(cat "$base/sshd.pid")" > /dev/null || return 0; sleep 0.1; done; return 1; }
check "sshd closes the session" ended
check "and the token ends with it" refused token joe
check "no login with a wrong password" refused over_ssh 'close sesame' true

# A ticket that ssh delegates: of a realm whose tickets the cell accepts.
realm() {
    cat > /etc/krb5.conf << CONF
[libdefaults]
default_realm = EXAMPLE.ORG
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
[realms]
EXAMPLE.ORG = {
kdc = 127.0.0.1:$kdc_port
}
[domain_realm]
localhost = EXAMPLE.ORG
CONF
    cat > "$base/kdc.conf" << CONF
[realms]
EXAMPLE.ORG = {
kdc_listen = 127.0.0.1:$kdc_port
kdc_tcp_listen = 127.0.0.1:$kdc_port
database_name = $base/principals
key_stash_file = $base/stash
}
CONF
    kdb5_util create -r EXAMPLE.ORG -s -P "master key" &&
        kadmin.local -q "addprinc -pw opensesame joe" &&
        kadmin.local -q "addprinc -randkey host/localhost" &&
        kadmin.local -q "addprinc -randkey rialto/example.org" &&
        kadmin.local -q "ktadd -k $base/host.keytab host/localhost" &&
        kadmin.local -q "ktadd -k $base/keytab rialto/example.org" &&
        krb5kdc -r EXAMPLE.ORG -P "$base/kdc.pid"
}
with_ticket() { # [-K] COMMAND
    local options=(-o GSSAPIAuthentication=yes -o PreferredAuthentications=gssapi-with-mic
        -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p "$port")
    [ "$1" != -K ] || { options+=(-K); shift; }
    as jim env KRB5CCNAME="FILE:$base/users/jim" ssh "${options[@]}" joe@localhost "$1" < /dev/null
}
PATH=$PATH:/usr/sbin
if command -v krb5kdc kdb5_util kadmin.local kinit > /dev/null; then
    kdc_port=$(python3 -c 'import socket
free = socket.socket()
free.bind(("127.0.0.1", 0))
print(free.getsockname()[1])')
    export KRB5_KDC_PROFILE=$base/kdc.conf KRB5_KTNAME=$base/host.keytab
    check "a realm" realm
    printf '\n[kerberos]\nkeytab = "%s"\n' "$base/keytab" >> "$cell/cell.toml"
    check "whose tickets the cell accepts" eval 'within 60 rialto down --lazy --dir "$cell" &&
        within 90 rialto up --no-mount --dir "$cell"'
    kill "$(cat "$base/sshd.pid")"
    while [ -e "$base/sshd.pid" ]; do sleep 0.05; done
    echo "GSSAPIStrictAcceptorCheck no" >> "$base/sshd_config"
    check "an sshd with a key of the realm" within 30 /usr/sbin/sshd -f "$base/sshd_config" \
        -E "$base/sshd.log"
    for _ in $(seq 100); do [ -e "$base/sshd.pid" ] && break; sleep 0.05; done
    mkdir -m 1777 "$base/users"
    printf 'opensesame\n' |
        as jim env KRB5CCNAME="FILE:$base/users/jim" kinit -f joe > /dev/null
    check "a login by a ticket that is not delegated has no token" says "no token" 1 with_ticket \
        'rialto tokens --path /mnt/tree'
    check "one by a ticket that is delegated has one" says "by kerberos" 0 with_ticket -K \
        'rialto tokens --path /mnt/tree'
    check "which writes" with_ticket -K 'date > /mnt/tree/joe/delegated'
    check "sshd closes the session" ended
    check "and the token ends with it" refused token joe
    check "and so does the ticket" [ -z "$(find /tmp -name 'krb5cc_*')" ]
else
    skip "no realm: krb5kdc is missing (Debian: krb5-kdc, krb5-admin-server, krb5-user)"
fi

# A server that does not answer.
process=$(head -n 1 "$cell/server.pid")
echo "$process" > "$base/stopped"
kill -STOP "$process"
began=$SECONDS
check "a login goes on while the server is silent" pam rialto-example joe 'open sesame' authenticate
check "within the documented time" [ $((SECONDS - began)) -le 25 ]
kill -CONT "$process"
rm "$base/stopped"
finish
