#!/bin/bash
# guide.sh [--quick] [--bin DIR]: runs pages of docs/operations, block by block in their order,
# on machines that systemd has booted (tests/lib/machine.sh), with the addresses of the pages.
#
# The word behind a fence says what a block is:
#   sh [USER@]MACHINE   commands, each of which must succeed; of root at the page's machine if
#                       nothing is said; `sh USER` is a user there. A terminal answers questions for
#                       passwords. LINE stands for the last line that the block before printed.
#   text                each of its lines is in what the block before printed
#   toml [MACHINE] FILE  lines of that file, each of which replaces the one of its name
#   conf [MACHINE] FILE  the file
#   fstab               lines that are added to /etc/fstab
#   sh unrun            is not run: the paragraph before it says why
# Any other block is a failure. --quick leaves out the loss of a server, which waits for half a
# minute (tests/real/lost_server.sh has it too). Needs root and /dev/fuse.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=${CARGO_TARGET_DIR:-$PWD/target}/release
quick=
[ "${1:-}" != --quick ] || { quick=--quick; shift; }
[ "${1:-}" != --bin ] || bin=$2
bin=$(realpath "$bin")
failures=0
pass() { printf 'PASS guide: %s\n' "$*"; }
fail() { printf 'FAIL guide: %s\n' "$*"; failures=$((failures + 1)); }
. tests/lib/machine.sh
. tests/lib/etcd.sh
if [ "$(id -u)" != 0 ] || [ ! -w /dev/fuse ]; then
    echo "SKIP guide: it needs root and /dev/fuse"
    exit 0
fi
missing=$(machine_tools) || { echo "SKIP guide: $missing is missing"; exit 0; }
if [ -z "${IN_GUIDE:-}" ]; then
    IN_GUIDE=yes exec unshare --mount --net --propagation private "$0" $quick --bin "$bin"
fi
WORK=$(mktemp -d -p /var/tmp rialto-guide.XXXXXX)
export MACHINE_NET=shared
ip link set lo up
for last in 1 2 3 10; do ip addr add 192.0.2.$last/32 dev lo; done
cleanup() { end_members; end_machines; cd / && rm -rf --one-file-system "$WORK"; }
trap cleanup EXIT

# check WHAT COMMAND...: its output is shown only when it fails.
check() {
    local what=$1
    shift
    if "$@" > "$WORK/log" 2>&1 < /dev/null; then pass "$what"; return; fi
    fail "$what"
    tail -n 15 "$WORK/log" | cut -c 1-200 | sed 's/^/     | /'
    local name
    for name in "${!machines[@]}"; do
        in_machine "$name" journalctl --no-pager --quiet --lines 6 --unit rialto-server 2>&1 |
            cut -c 1-200 | sed "s/^/     $name | /"
    done
    return 1
}

# on [USER@]MACHINE COMMAND...
on() {
    local user=root machine=${1#*@} home=/root.guide
    [[ $1 != *@* ]] || user=${1%@*}
    [ "$user" = root ] || home=/home/$user
    local runtime=
    runtime=/run/user/$(in_machine "$machine" id -u "$user")
    in_machine "$machine" test -d "$runtime" || runtime=
    shift
    # runuser sets HOME, so it comes first.
    in_machine "$machine" runuser -u "$user" -- env -i HOME=$home USER="$user" TERM=dumb \
        LC_ALL=C.UTF-8 ${runtime:+XDG_RUNTIME_DIR="$runtime"} \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        CARGO_TARGET_DIR=/target timeout 120 "$@"
}
root() { on "$1" bash -euo pipefail -c "[ ! -e ~/.profile ] || . ~/.profile; cd; $2"; }

# A file of a machine is written, or the lines of a block replace those with their names.
write_file() { on "$1" sh -c "cat $3 '$2'" < "$WORK/block"; }
set_lines() { # MACHINE FILE
    local line name
    while read -r line; do
        name=${line%% =*}
        case $name in partitions) name='partitions\?' ;; esac
        on "$1" grep -q "^$name = " "$2" || { echo "$2 has no line $name"; return 1; }
        on "$1" sed -i "s|^$name = .*|$line|" "$2" || return
    done < "$WORK/block"
}
run_block() { # [USER@]MACHINE
    local place=$1 line
    line=$(grep -v '^ *$' "$WORK/printed" 2> /dev/null | tail -n 1)
    { printf '[ ! -e ~/.profile ] || . ~/.profile\ncd %s\n' "${directory:-~}"
        sed "s|\bLINE\b|${line//|/\\|}|g" "$WORK/block"; } > "$WORK/commands/block"
    chmod 644 "$WORK/commands/block"
    on "$place" python3 /guide/answering.py 'open sesame' bash -euo pipefail /guide/block \
        > "$WORK/printed" 2>&1
    local status=$?
    cat "$WORK/printed"
    return $status
}
printed() {
    local line
    while IFS= read -r line; do
        grep -qF -- "$line" "$WORK/printed" || { echo "not printed: $line"; cat "$WORK/printed"
            return 1; }
    done < "$WORK/block"
}

# Some blocks are for a cell to which something has happened: it happens when the first line of such
# a block is to run.
declare -A happens=()
prepare() {
    [ -z "${1:+${happens[$1]:-}}" ] || check "for '$1'" eval "${happens[$1]}"
}

# page NAME MACHINE [SECTION]: the blocks of the page, or of its sections of that name.
page() {
    local name=$1 default=$2 count=0 number kind first second place
    while read -r number kind first second; do
        python3 tests/lib/page.py "docs/operations/$name.md" show "$number" > "$WORK/block"
        place=$default
        prepare "$(head -n 1 "$WORK/block")" || return
        case $kind,$first in
            sh,unrun | text,unrun)
                [ -z "$second" ] || fail "$name: block $number is not run $second" ;;
            sh,*)
                case $first in
                    '') ;;
                    *@*) place=$first ;;
                    *) place=$first@$default ;;
                esac
                check "$name: block $number runs" run_block "$place" || return ;;
            text,) check "$name: block $number is printed" printed || return ;;
            toml,* | conf,*)
                case $first in /*) second=$first ;; *) place=$first ;; esac
                if [ $kind = toml ]; then
                    check "$name: block $number is set" set_lines "$place" "$second" || return
                else
                    check "$name: block $number is written" write_file "$place" "$second" '>' ||
                        return
                fi ;;
            fstab,)
                check "$name: block $number is in fstab" write_file "$place" /etc/fstab '>>' ||
                    return ;;
            *) fail "$name: block $number is neither run nor has a reason: '$kind $first'" ;;
        esac
        count=$((count + 1))
    done < <(python3 tests/lib/page.py "docs/operations/$name.md" steps "${3:-.*}")
    [ "$count" -gt 0 ] || fail "$name has no blocks ${3:-}"
}

# What each page takes for granted. The program is built, so cargo has nothing to do.
mkdir "$WORK/commands" "$WORK/checkout"
cp -r Makefile Cargo.toml scripts packaging "$WORK/checkout/"
cp tests/lib/answering.py "$WORK/commands/"
cat > "$WORK/commands/sudo" << 'END'
#!/bin/sh
export SUDO_USER=root SUDO_UID=0 SUDO_GID=0 user=$2
shift 2
exec runuser -u "$user" -- "$@"
END
printf '#!/bin/sh\n' > "$WORK/commands/cargo"
chmod 755 "$WORK/commands"/{sudo,cargo}
machine() { # NAME: boots
    check "machine $1 boots" machine_boots "$1" || exit 1
    on "$1" sh -c 'mkdir -p /root.guide /srv /mnt && rm -f /usr/local/bin/rialto &&
        mount -t tmpfs -o mode=755 mnt /mnt && cp /guide/cargo /usr/local/bin/ &&
        { command -v sudo > /dev/null || cp /guide/sudo /usr/local/bin/; }'
}
for name in first second third client; do
    start_machine "$name" / "$WORK/commands:/guide" "$WORK/checkout:/checkout" \
        "$bin:/target/release"
done
for name in first second third client; do machine $name; done
on client useradd --create-home --non-unique --uid 1000 --shell /bin/bash alice

# A cell from the beginning.
directory=/checkout page install first '1\.|2\.'
for name in second third; do directory=/checkout page install $name '1\.|2\.'; done
directory=/checkout page install client '1\.'
page install first '[3-8]\.'
check "alice's file is there" root first 'grep -q first /mnt/tree/alice/first'

# Two more servers.
joined() { # NAME NUMBER: as the pages have it, on a machine of that name
    root first "rialto cell invite --name $1" > "$WORK/printed" 2> /dev/null
    local number
    read -r number _ < <(python3 tests/lib/page.py docs/operations/add-a-server.md steps '3\.')
    python3 tests/lib/page.py docs/operations/add-a-server.md show "$number" |
        sed "s/192.0.2.2/192.0.2.$2/" > "$WORK/block"
    check "$1 joins" run_block "$1" && page install "$1" '4\.'
}
page add-a-server first '[1-3]\.'
page install second '4\.'
page add-a-server first '[4-6]\.'

# The same cell later.
directory=/checkout page upgrade first
on client sh -c "echo '192.0.2.1 files.example.org fs1.example.org' >> /etc/hosts"
root client 'rialto umount /mnt/tree && mkdir /mnt/cell'
page mount client
root first 'rialto pts createuser adm && rialto pts adduser adm system:administrators' > /dev/null
root first 'rialto pts createuser joe -uid 1001' > /dev/null
echo 'rialto passwd adm --new-only --dir /srv/rialto' > "$WORK/block"
check "an administrator" run_block first
page remote-administration alice@client
root second 'rm -rf /srv/rialto/*'
joined second 2
joined third 3
happens['rialto vos partinfo                           # which partition']="root first '
    rialto vos create first vicep proj.old
    for day in monday tuesday; do rialto vos snapshot create home.alice \$day; done'"
happens['rialto vos restore first vicep home.alice alice.dump']="root first '
    rialto vos dump home.alice -file alice.dump && rialto vos remove -id home.alice'"
happens['rialto vos dump home.alice.readonly -file ro.dump']="root first '
    rialto vos addsite third vicep home.alice && rialto vos release home.alice'"
happens['rialto vos listvldb -server second']="root first '
    rialto vos move proj.web -toserver second && rialto vos addsite third vicep proj.web &&
    rialto vos release proj.web' && root second '
    systemctl kill --kill-whom=main --signal=KILL rialto-server && systemctl stop rialto-server'"
happens['rialto vos dump -server second -id proj.web -file proj.web.rest']="root second '
    systemctl start rialto-server'"
happens['rialto cell remove-server second --lost']="root second '
    systemctl kill --kill-whom=main --signal=KILL rialto-server && systemctl stop rialto-server'"
if [ -z "$quick" ]; then
    page recover first
else
    page recover first '(?!A server is lost)'
    root second 'systemctl stop rialto-server'
    check "second is removed" root first 'rialto cell remove-server second --lost'
fi

# A server with two disks, which are replaced.
root second 'rm -rf /srv/rialto/* && mkdir -p /srv/disk2 /srv/disk3 /srv/disk4 &&
    echo "export RIALTO_HOME=/srv/rialto" >> ~/.profile'
line=$(root first 'rialto cell invite --name second' 2> /dev/null)
check "second is back" root second "chown root /srv/rialto && rialto up --dir /srv/rialto \
    --join $line --listen 192.0.2.2:7620 --no-mount && rialto down --dir /srv/rialto"
listed() { root first 'rialto vos listaddrs' | grep -q 192.0.2.2; }
is_listed() { for _ in $(seq 50); do listed && return; sleep 0.2; done; listed; }
echo 'partitions = ["vicep", "/srv/disk2/vicepb"]' > "$WORK/block"
check "it gets a second disk" set_lines second /srv/rialto/cell.toml
check "it starts" root second 'rialto up --dir /srv/rialto --no-mount'
check "and the database has its address" is_listed
check "it has a volume on each" root second 'rialto vos create second vicep home.bob &&
    rialto vos move home.alice -toserver second -topartition vicepb -withgroup &&
    rialto vos snapshot create home.alice monday'
page replace-a-disk second
there() { grep "^ *second .*$2 *$" <<< "$(root second "rialto vos examine $1")"; }
check "the volume is on the new disk" there home.alice vicepc
check "with its snapshot" root second 'rialto vos snapshot list home.alice | grep monday'
check "the other is where it was" there home.bob vicep
check "on the copy of the disk" on second grep -q '"/srv/disk4/vicep"' /srv/rialto/cell.toml
check "and the old disks are not needed" root second 'rm -r /srv/disk2/* /srv/rialto/vicep &&
    rialto down --dir /srv/rialto && rialto up --dir /srv/rialto --no-mount &&
    rialto vos examine home.alice && rialto vos examine home.bob'

# A standby of alice's volume at the second server.
began=$SECONDS
in_step() {
    for _ in $(seq 150); do
        root first 'rialto vos examine home.alice' | grep -q ', in step' && return; sleep 0.2; done
    root first 'rialto vos examine home.alice'
    return 1
}
happens['rialto vos addstandby -server second -partition vicep -id home.alice']="root first '
    rialto vos listvldb home.alice | grep -q \"first partition /vicep RW\" ||
        rialto vos move home.alice -toserver first -topartition vicep'"
happens['rialto vos failover home.alice -toserver first']="root first '
    rialto vos failover home.alice' && in_step"
happens['rialto vos failover home.alice']=in_step
page standbys first
check "the standby has taken over" root first \
    'rialto vos listvldb home.alice | grep "second partition /vicep RW"'

# The database goes to three members of etcd and back.
check "certificates of etcd" members "$WORK/etcd" DNS:db1,DNS:db2,DNS:db3 \
    192.0.2.1 192.0.2.2 192.0.2.3
for number in 0 1 2; do member $number; done
for file in ca.pem:etcd-ca.pem one.pem:etcd.pem one.key:etcd.key; do
    on first sh -c "mkdir -p /etc/rialto && cat > /etc/rialto/${file#*:} &&
        chown rialto /etc/rialto/${file#*:} && chmod 600 /etc/rialto/${file#*:}" \
        < "$WORK/etcd/pki/${file%:*}"
done
for number in 1 2 3; do on first sh -c "echo 192.0.2.$number db$number >> /etc/hosts"; done
page etcd first
check "the cell goes on" root first 'rialto vos create first vicep after.etcd &&
    rialto pts examine alice && rialto vos examine home.alice'

# A user's timer renews a login. It runs at once here, as if most of the login's time were over.
check "joe has his own service manager" root client 'useradd --create-home --uid 1001 \
    --shell /bin/bash joe && loginctl enable-linger joe'
# Earlier pages fenced him off.
root first 'rialto fence list --json | grep -oE "\"(number|id)\":[0-9]+" | cut -d: -f2 |
    xargs -rn 1 rialto fence remove' > /dev/null
echo 'rialto passwd joe --new-only --dir /srv/rialto' > "$WORK/block"
check "and a password" run_block first
root client 'rialto fs newcell example.org 192.0.2.1:7620' > /dev/null
echo 'rialto login joe --cell example.org' > "$WORK/block"
check "and a login" run_block joe@client
happens['mkdir -p ~/.config/systemd/user']="root joe@client '
    for kind in service timer; do
        mkdir -p ~/.config/systemd/user/rialto-renew.\$kind.d; done
    printf \"[Service]\nExecStart=\nExecStart=faketime -f +8h rialto pts listmax\n\" \
        > ~/.config/systemd/user/rialto-renew.service.d/test.conf
    printf \"[Timer]\nOnActiveSec=1s\nAccuracySec=100ms\n\" \
        > ~/.config/systemd/user/rialto-renew.timer.d/test.conf'"
token() { root joe@client 'cat $XDG_RUNTIME_DIR/rialto/*.token | cksum'; }
before=$(token)
page logins client Renewal
is_renewed() { for _ in $(seq 300); do [ "$(token)" = "$before" ] || return 0; sleep 0.1; done
    root joe@client 'systemctl --user status rialto-renew.timer rialto-renew.service'
    return 1; }
check "the timer has renewed the login" is_renewed
echo "     guide: it took $SECONDS s, the last three pages $((SECONDS - began)) s"
exit $((failures > 0))
