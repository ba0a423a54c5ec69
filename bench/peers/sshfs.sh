#!/bin/bash
# sshfs: SFTP over ssh from this machine to itself, with a server and keys of its own.
. "$(dirname "$0")/lib.sh"
packages=(sshfs openssh-server openssh-client fuse3)
programs=(sshfs /usr/sbin/sshd ssh-keygen)

serve() {
    mkdir -p "$dir/export" /run/sshd
    local key
    for key in host user; do [ -e "$dir/$key" ] ||
        ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
    [ -e "$dir/port" ] || shuf -i 20000-29999 -n 1 >"$dir/port"
    cat >"$dir/sshd.conf" <<CONFIG
ListenAddress 127.0.0.1:$(cat "$dir/port")
HostKey $dir/host
AuthorizedKeysFile $dir/user.pub
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
CONFIG
    background server sshd /usr/sbin/sshd -D -e -f "$dir/sshd.conf"
    patiently 10 bash -c "</dev/tcp/127.0.0.1/$(cat "$dir/port")"
}

attach() {
    background client sshfs sshfs -f -p "$(cat "$dir/port")" \
        -o "IdentityFile=$dir/user,StrictHostKeyChecking=no" \
        -o "UserKnownHostsFile=/dev/null,LogLevel=ERROR" \
        "root@127.0.0.1:$dir/export" "$mount"
    patiently 20 answers
    # The process that serves this connection keeps the files.
    remember server $(pgrep -P "$(awk '$1 == "server" { print $2; exit }' "$dir/pids")" || true)
}

peer "$@"
