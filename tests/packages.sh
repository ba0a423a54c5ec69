#!/bin/bash
# packages.sh [--clean] [BIN]: the Debian packages of the program in the directory BIN (default
# target/release), on a machine that systemd has booted (tests/lib/machine.sh), over this one's root
# or, with --clean, over one that has Debian and nothing else, from this machine's mirror. They are
# installed, serve and mount, are upgraded under open files, and are removed; the data stays.
# Root only. Prints PASS, FAIL and SKIP lines; the exit code is 1 if any failed.
set -uo pipefail
PART=${PART:-packages}
here=$(cd "$(dirname "$0")" && pwd)

# Inside, as root of the booted machine. $1: the directory with the packages, old/ and new/.
inside() {
    local debs=$1 data=/var/lib/rialto-server
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    unset RIALTO_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_CACHE_HOME
    installs() { within 120 apt-get install -y -q --allow-downgrades "$debs/$1"/*.deb; }
    active() { [ "$(systemctl is-active "$1")" = active ]; }
    main_pid() { systemctl show -P MainPID "$1"; }
    field_of() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$(main_pid "$1")/status"; }
    program_is_gone() { [[ $(readlink "/proc/$1/exe") == *deleted* ]]; }
    # works UNIT COMMAND...: the unit's messages are shown if it does not.
    works() {
        local unit=$1
        shift
        "$@" || { journalctl --no-pager --lines 20 --unit "$unit"; return 1; }
    }
    until_true() {
        local tries=300
        until "$@"; do [ $((tries--)) -gt 0 ] || return 1; sleep 0.1; done
    }

    check "apt installs them" installs old || return
    check "the server's user is there" id rialto
    check "the server is enabled" test "$(systemctl is-enabled rialto-server)" = enabled
    check "and waits for a cell" refused active rialto-server
    check "the timer of the check is on" active rialto-scrub.timer
    check "manual pages are there" man --where rialto-vos-dump
    check "OpenAFS's names are in a directory of their own" \
        test "$(PATH=/usr/lib/rialto/openafs vos version)" = "$(rialto --version)"
    check "bash completes" test -s /usr/share/bash-completion/completions/rialto

    check "the server's user makes a cell" within 60 runuser -u rialto -- rialto up --dir "$data" \
        --cell packages.test --listen 127.0.0.1:7620 --no-mount
    check "and stops it" within 60 runuser -u rialto -- rialto down --dir "$data"
    check "systemd starts the server" within 120 systemctl start rialto-server
    check "it serves when systemctl returns" within 10 rialto status --dir "$data"
    check "it is no root" test "$(field_of rialto-server Uid)" = "$(id -u rialto)"
    check "it has no capability" test "$(field_of rialto-server CapBnd)" = 0000000000000000
    check "and gets none" test "$(field_of rialto-server NoNewPrivs)" = 1
    exposure=$(systemd-analyze security --no-pager rialto-server |
        sed -n 's/.*exposure level for rialto-server.service: \([0-9.]*\).*/\1/p')
    note "systemd's exposure level of the server is $exposure of 10"
    check "which is little" awk "BEGIN { exit !(${exposure:-10} <= 2.5) }"

    mkdir -p /mnt/tree /mnt/kept
    printf 'unix:%s/server.sock /mnt/tree rialto _netdev,nofail 0 0\n' "$data" >> /etc/fstab
    systemctl daemon-reload
    check "systemd mounts what is in fstab" within 60 systemctl start mnt-tree.mount
    check "the tree takes work" sh -c "cp -r /usr/share/doc/rialto-common /mnt/tree/doc &&
        sync /mnt/tree && diff -r /usr/share/doc/rialto-common /mnt/tree/doc"
    printf 'SOURCE=unix:%s/server.sock\nOPTIONS=-o noatime\n' "$data" > \
        /etc/rialto/mount-mnt-kept.conf
    check "systemd mounts a tree that is kept" works rialto-mount@mnt-kept within 60 systemctl \
        start rialto-mount@mnt-kept
    check "it is there when systemctl returns" test -d /mnt/kept/doc

    # Writers that keep their files open through the upgrade; each line is checked.
    cat > /tmp/writer.py << 'END'
import sys, time
path, stop, count = sys.argv[1], sys.argv[2], 0
import os
with open(path, "w+") as file:
    while not os.path.exists(stop):
        file.write(f"line {count}\n"); file.flush(); os.fsync(file.fileno())
        count += 1
        time.sleep(0.02)
    file.seek(0)
    assert [line.strip() for line in file] == [f"line {n}" for n in range(count)], "lines are lost"
print(count)
END
    for tree in tree kept; do
        python3 /tmp/writer.py "/mnt/$tree/open.$tree" /tmp/stop > "/tmp/writer.$tree" 2>&1 &
        writers[${#writers[@]}]=$!
    done
    check "both are written" until_true test -s /mnt/tree/open.kept -a -s /mnt/kept/open.tree
    server=$(main_pid rialto-server) mount=$(main_pid rialto-mount@mnt-kept)
    keeper=$(main_pid rialto-keeper)
    check "apt upgrades them" installs new
    check "it is the new version" test \
        "$(dpkg-query -W -f '${Version}' rialto-server)" = "$(cat "$debs/new/version")"
    check "the server is restarted" test "$(main_pid rialto-server)" != "$server"
    check "by the new program" refused program_is_gone "$(main_pid rialto-server)"
    check "the kept mount is not" test "$(main_pid rialto-mount@mnt-kept)" = "$mount"
    check "it goes on with the old program" program_is_gone "$mount"
    check "it is killed" systemctl kill --signal=KILL rialto-mount@mnt-kept
    replaced() {
        local now; now=$(main_pid rialto-mount@mnt-kept)
        [ "$now" != "$mount" ] && [ "$now" != 0 ] && active rialto-mount@mnt-kept
    }
    check "another process takes over" until_true replaced
    check "of the new program" refused program_is_gone "$(main_pid rialto-mount@mnt-kept)"
    check "with the same keeper" test "$(main_pid rialto-keeper)" = "$keeper"
    check "both trees answer" within 30 ls /mnt/tree/doc /mnt/kept/doc
    sleep 1
    touch /tmp/stop
    for writer in "${writers[@]}"; do
        check "a file that was open the whole time has each line" within_wait 60 "$writer"
    done
    check "and many of them" sh -c 'cat /tmp/writer.*; test "$(cat /tmp/writer.tree)" -gt 10 -a \
        "$(cat /tmp/writer.kept)" -gt 10'

    check "the check of what is stored runs" works rialto-scrub within 60 systemctl start \
        rialto-scrub.service
    install -d -o rialto -g rialto -m 700 /var/backups/rialto
    echo DIRECTORY=/var/backups/rialto >> /etc/rialto/dump.conf
    check "two volumes" sh -c "rialto vos --dir $data create localhost vicep home.alice &&
        rialto vos --dir $data create localhost vicep home.alice.b"
    check "they are dumped" within 60 systemctl start rialto-dump.service
    dumps() { find /var/backups/rialto -name "$1" | wc -l; }
    check "each once" test "$(dumps '*.dump')" -eq 3
    check "so is the cell's database" rialto backup verify /var/backups/rialto/cell.*.backup
    dump=$(echo /var/backups/rialto/root.cell.*.dump)
    check "a dump is restored" within 60 rialto vos --dir "$data" restore localhost vicep again \
        -file "$dump"
    check "and has the files" within 60 sh -c "
        RIALTO_HOME=$data rialto fs mkmount /mnt/tree/again again &&
        diff -r /mnt/tree/doc /mnt/tree/again/doc"
    sleep 2
    check "the next time" within 60 systemctl start rialto-dump.service
    sleep 2
    before=$(dumps '*.dump')
    check "and the next" within 60 systemctl start rialto-dump.service
    check "only what has changed is dumped" test "$(dumps '*.dump')" -eq "$before"
    check "nobody else reads them" test "$(stat -c %a "$dump")" = 600
    echo KEEP=1 >> /etc/rialto/dump.conf
    check "a change" sh -c "echo new > /mnt/tree/new && sync /mnt/tree/new"
    check "is dumped" works rialto-dump within 60 systemctl start rialto-dump.service
    check "and what is old goes" test "$(dumps 'root.cell.*.dump') $(dumps 'cell.*.backup')" = "1 1"

    check "the kept mount is stopped" within 60 systemctl stop rialto-mount@mnt-kept
    check "it is unmounted" refused mountpoint -q /mnt/kept
    check "fstab's too" works mnt-tree.mount within 60 systemctl stop mnt-tree.mount
    check "they are removed" within 120 apt-get remove -y -q rialto-server rialto-client \
        rialto-common
    check "nothing of them runs" refused pgrep -x rialto
    check "and purged" within 120 apt-get purge -y -q rialto-server rialto-client rialto-common
    check "the data stays" test -s "$data/cell.toml"
    check "installed again" installs new
    check "it serves what it had" until_true active rialto-server
    check "mounted again" within 60 systemctl start mnt-tree.mount
    check "with its files" grep -qx new /mnt/tree/new
    check "unmounted" within 60 systemctl stop mnt-tree.mount
}
# within_wait SECONDS PID: the child ends well within that time.
within_wait() {
    local tries=$(($1 * 10))
    while kill -0 "$2" 2> /dev/null; do
        [ $((tries--)) -gt 0 ] || { kill -9 "$2"; return 1; }
        sleep 0.1
    done
    wait "$2"
}

if [ "${1:-}" = --inside ]; then
    WORK=/tmp writers=()
    . "$3/lib/real.sh"
    inside "$2"
    finish
fi

. "$here/lib/real.sh"
. "$here/lib/machine.sh"
clean=no
[ "${1:-}" != --clean ] || { clean=yes PART=clean_packages; shift; }
[ "$(id -u)" = 0 ] || { skip "needs root"; finish; }
missing=$(machine_tools) || { skip "$missing is missing"; finish; }
tools=(dh dpkg-buildpackage apt-get)
[ $clean = no ] || tools+=(mmdebstrap)
for tool in "${tools[@]}"; do
    command -v "$tool" > /dev/null || { skip "$tool is missing"; finish; }
done
bin=$(realpath "${1:-${CARGO_TARGET_DIR:-$here/../target}/release}")
WORK=$(mktemp -d -p /var/tmp rialto-packages.XXXXXX)
end() {
    end_machines
    rm -rf "$WORK"
}
trap end EXIT
packed() { # packed NAME VERSION
    RIALTO=$bin/rialto DEB_VERSION=$2 DEB_BUILD_OPTIONS=noautodbgsym \
        "$here/../scripts/deb.sh" "$WORK/debs/$1" && echo "$2" > "$WORK/debs/$1/version"
}
check "packages" packed old 0.1.0-1
# The next version has the same program.
check "and of a later version" packed new 0.1.0-2

# The root of a machine that has Debian and nothing else, of this machine's release and mirrors. It
# is kept for the next time, without the packages that ours need: apt fetches these here, since the
# machine has no network.
clean_root() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests suite
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    lower=$cache/debian-$suite
    if [ ! -e "$lower.complete" ]; then
        mkdir -p "$cache" && rm -rf "$lower" &&
            TMPDIR=$WORK mmdebstrap --quiet --mode=root --variant=apt \
                --include=systemd-sysv,dbus,python3-minimal,man-db,procps \
                "$suite" "$lower" && touch "$lower.complete" || return
    fi
    mkdir -p "$WORK/clean/root" "$WORK/clean/upper" "$WORK/clean/work" &&
        mount -t overlay clean "$WORK/clean/root" -o \
            "lowerdir=$lower,upperdir=$WORK/clean/upper,workdir=$WORK/clean/work" &&
        mkdir -p "$WORK/clean/root/packages" "$WORK/clean/root/proc" &&
        mount --bind "$WORK/debs" "$WORK/clean/root/packages" &&
        cp /etc/resolv.conf "$WORK/clean/root/etc/resolv.conf" || return
    chroot "$WORK/clean/root" sh -c 'apt-get update -q && apt-get install -y -q --download-only \
        /packages/old/*.deb'
    local fetched=$?
    umount "$WORK/clean/root/packages" && umount "$WORK/clean/root" || return
    lower=$WORK/clean/upper:$lower
    return $fetched
}
lower=/
if [ $clean = yes ]; then
    check "a clean Debian, and the packages that ours need" clean_root || finish
fi
start_machine machine "$lower" "$WORK/debs:/packages" "$here:/tmp/tests"
check "systemd boots" machine_boots machine || finish
in_machine machine PART=$PART bash /tmp/tests/packages.sh --inside /packages /tmp/tests ||
    failures=$((failures + 1))
finish
