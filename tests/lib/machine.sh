# Machines for tests: systemd boots on an overlay over a root file system, in name spaces of its
# own, which take every process and mount with them. Sourced; the caller has WORK, and calls
# `end_machines` when it ends. Root only.
#
# machine NAME [ROOT]   boots one; ROOT [/] is not changed. With MACHINE_NET=shared it has the
#                       network of the caller, otherwise one of its own, with lo alone.
# in_machine NAME COMMAND...

declare -A machines=()
machine_tools() { # prints the tool that is missing
    local tool
    for tool in unshare nsenter /lib/systemd/systemd pivot_root; do
        command -v $tool > /dev/null || { echo $tool; return 1; }
    done
}

# The control groups of a machine are below those of its caller: one in the tree of version 2, or
# one in each tree of version 1 that can be written.
group_trees() {
    local tree
    if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then echo /sys/fs/cgroup; return; fi
    for tree in /sys/fs/cgroup/*; do [ -L "$tree" ] || [ ! -w "$tree" ] || echo "$tree"; done
}
machine_groups() { # NAME
    local tree
    for tree in $(group_trees); do echo "$tree/$(basename "$WORK").$1"; done
}
join_groups() { # NAME
    local group file
    for group in $(machine_groups "$1"); do
        mkdir "$group" || return
        for file in cpuset.cpus cpuset.mems; do # Empty at first in version 1.
            [ ! -e "${group%/*}/cpuset.cpu_exclusive" ] ||
                cat "${group%/*}/$file" > "$group/$file"; done
        echo $BASHPID > "$group/cgroup.procs" || return
    done
}
mount_groups() { # NAME PLACE
    local group tree
    if [ "$(group_trees)" = /sys/fs/cgroup ]; then
        mount --bind "$(machine_groups "$1")" "$2"; return; fi
    mount -t tmpfs groups "$2" || return
    for group in $(machine_groups "$1"); do
        tree=$2/$(basename "${group%/*}")
        mkdir "$tree" && mount --bind "$group" "$tree" || return
    done
    # Other names of trees, where there are any: cpu,cpuacct.
    find /sys/fs/cgroup -maxdepth 1 -type l -exec cp -d -t "$2" {} + || return
}

boot_machine() { # becomes the machine's first process: NAME ROOT DIRECTORY-TO-SHARE...
    local name=$1 lower=$2 dir=$WORK/machine.$1 root=$WORK/machine.$1/root
    shift 2
    mkdir -p "$root" "$dir/layer" && mount -t tmpfs layer "$dir/layer" &&
        mkdir "$dir/layer/upper" "$dir/layer/work" &&
        mount -t overlay machine "$root" -o \
            "lowerdir=$lower,upperdir=$dir/layer/upper,workdir=$dir/layer/work" || return
    mount -t proc proc "$root/proc" && mount -t sysfs sysfs "$root/sys" &&
        mount_groups "$name" "$root/sys/fs/cgroup" && mount --rbind /dev "$root/dev" &&
        mount -t tmpfs run "$root/run" && mount -t tmpfs -o mode=1777 tmp "$root/tmp" || return
    local shared
    for shared in "$@"; do # FROM:TO
        mkdir -p "$root/${shared#*:}" && mount --bind "${shared%%:*}" "$root/${shared#*:}" ||
            return
    done
    [ "${MACHINE_NET:-}" = shared ] || ip link set lo up
    # Only what the test brings is started, and that is: images of containers forbid it.
    rm -f "$root"/etc/systemd/system/*.wants/* "$root/usr/sbin/policy-rc.d"
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    # These would set what is the kernel's, and so every machine's.
    local unit
    for unit in sysctl binfmt modules-load; do
        ln -sf /dev/null "$root/etc/systemd/system/systemd-$unit.service"; done
    printf '%s\n' "$name" > "$root/etc/hostname"
    : > "$root/etc/fstab"
    # Without what is mounted elsewhere on this machine: an unmount there would not end a mount that
    # is mounted here too.
    exec > "$dir/boot.log" 2>&1
    mkdir -p "$root/before" && cd "$root" && pivot_root . before && umount --lazy /before || return
    # As on a machine that has booted: what is unmounted leaves the name spaces of services too.
    mount --make-rshared /
    container=$name exec chroot . /lib/systemd/systemd --system --show-status=no
}

# start_machine NAME ROOT [FROM:TO...]: begins to boot; directories of the caller are shared.
start_machine() {
    local name=$1 net=--net
    [ "${MACHINE_NET:-}" != shared ] || net=
    mkdir -p "$WORK/machine.$name"
    export -f boot_machine group_trees machine_groups mount_groups
    export WORK MACHINE_NET
    # Two machines in one group would end and refuse each other's services.
    (
        join_groups "$name" &&
            exec unshare --mount --pid $net --ipc --uts --cgroup --fork --mount-proc --kill-child \
                bash -c 'boot_machine "$@"' boot "$@"
    ) > "$WORK/machine.$name/unshare.log" 2>&1 &
    machines[$name]=$!
}
in_machine() {
    local name=$1 first
    shift
    first=$(pgrep -P "${machines[$name]}" | head -n 1)
    [ -n "$first" ] || { echo "machine $name does not run"; return 1; }
    nsenter --target "$first" --mount --pid --net --ipc --uts --cgroup --root env --chdir=/ "$@"
}
machine_is_up() {
    [[ $(in_machine "$1" systemctl is-system-running 2> /dev/null) =~ ^(running|degraded)$ ]]
}
machine_boots() { # waits until it has booted
    local tries=300
    until machine_is_up "$1"; do
        [ $((tries--)) -gt 0 ] || { cat "$WORK/machine.$1"/*.log; return 1; }
        sleep 0.1
    done
}
end_machines() {
    local name
    for name in "${!machines[@]}"; do
        kill -9 "${machines[$name]}" 2> /dev/null
        wait "${machines[$name]}" 2> /dev/null
        # Its processes end with the first one, and the kernel takes a moment to forget them.
        local tries=100
        until find $(machine_groups "$name") -depth -type d -exec rmdir {} + 2> /dev/null; do
            [ $((tries--)) -gt 0 ] || break
            sleep 0.1
        done
    done
    machines=()
}
