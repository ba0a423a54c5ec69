# A machine with one of the kernel's clients of AFS: OpenAFS's module, or kafs of Linux itself. The
# kernel of this machine need not have them, so Debian's kernel runs in an emulated machine, whose
# root file system is this one's below a layer of its own. Nothing is installed. After
# tests/lib/real.sh and tests/lib/openafs.sh, or with CACHE and OPENAFS set; bash, strict or not.
#
# It needs root, and the packages qemu-system-x86 busybox-static cpio kmod make gcc flex bison perl
# libelf-dev keyutils krb5-user ('scripts/setup.sh soak' installs them). One guest runs at a time.
# It takes its commands from a port of its console, and their output is in a directory that both
# machines see, so that a command that hangs holds up no other.

guest_address=10.94.0.2

# Makes the guest's kernel with its modules in $CACHE/guest, or fails; with 2 if its packages cannot
# be downloaded. OpenAFS's module takes some minutes to build, once for each kernel.
get_guest() {
    GUEST=$CACHE/guest
    local package version
    package=$(apt-cache depends linux-image-amd64 |
        sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    version=${package#linux-image-}
    [ -n "$version" ] || { echo "no kernel is known to apt"; return 2; }
    [ "$(cat "$GUEST/complete" 2> /dev/null)" != "$version" ] || return 0
    rm -rf "$GUEST"
    mkdir -p "$GUEST/packages"
    # Status by status: a caller's `||` switches 'set -e' off.
    (cd "$GUEST/packages" && apt-get -q download "$package" openafs-modules-dkms kafs-client \
        "linux-headers-$version" "linux-headers-${version%-amd64}-common" \
        "linux-kbuild-${version%%.0-*}" > ../download.log 2>&1) || return 2
    for package in "$GUEST"/packages/*.deb; do
        dpkg-deb -x "$package" "$GUEST/unpacked" || return 1
    done
    rm -r "$GUEST/packages"
    (cd "$GUEST" && unpack_kernel "$version" && build_openafs_module "$version" &&
        pack_first "$version" && echo "$version" > complete)
}

# The kernel that is in the package is packed, and an emulator takes long to unpack it.
unpack_kernel() { # unpack_kernel KERNEL
    python3 - "unpacked/boot/vmlinuz-$1" vmlinux << 'PY'
import lzma, sys
image = open(sys.argv[1], "rb").read()
kernel = lzma.LZMADecompressor().decompress(image[image.find(b"\xfd7zXZ\0"):])
open(sys.argv[2], "wb").write(kernel)
PY
}

# Builds it in the directory `built`, with the headers where their packages would have them, for
# this build alone.
build_openafs_module() { # build_openafs_module KERNEL
    version=$1 unshare --mount --propagation private bash -ec '
        cp -r unpacked/usr/src/openafs-* built
        for of in src lib; do
            mount -t overlay -o "lowerdir=$PWD/unpacked/usr/$of:/usr/$of" headers /usr/$of; done
        cd built
        ./configure --disable-linux-syscall-probing --with-afs-sysname=amd64_linux26 \
            --with-linux-kernel-packaging \
            --with-linux-kernel-headers="/usr/src/linux-headers-$version"
        make' > build.log 2>&1 || { tail -n 20 build.log; return 1; }
    mkdir -p "unpacked/lib/modules/$1/updates" &&
        cp "$(find built -name openafs.ko | head -n 1)" "unpacked/lib/modules/$1/updates" &&
        depmod -b unpacked "$1" && rm -r built
}

# Makes the first root file system, which mounts this machine's and goes on there.
pack_first() { # pack_first KERNEL
    local module file modules
    mkdir -p first/bin first/modules
    cp "$(command -v busybox)" first/bin/
    for module in virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay; do
        modprobe -d unpacked -S "$1" --show-depends $module
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' > modules
    while read -r file; do cp "$file" first/modules/; done < modules
    sed 's|.*/||' modules > first/modules/order
    cat > first/init << 'INIT'
#!/bin/busybox sh
mkdir -p /bin /proc /sys /dev /lower /layer /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
while read -r file; do insmod "/modules/$file"; done < /modules/order
way=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $way,ro,cache=loose machine /lower
mount -t tmpfs layer /layer; mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work root /root
mkdir -p /root/shared /root/afs /root/usr/lib/modules
mount -t 9p -o $way shared /root/shared
mount -t 9p -o $way,ro,cache=loose modules /root/usr/lib/modules
for of in dev proc sys; do mount -o bind /$of /root/$of; done
mkdir -p /root/dev/shm
for of in tmp run var/tmp dev/shm; do mount -t tmpfs -o mode=1777 $of /root/$of; done
ifconfig lo 127.0.0.1 up
. /root/shared/network
ifconfig eth0 $address netmask 255.255.255.0 up
cat > /root/run/last << 'LAST'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cd /
# A command is a directory of /shared. Its status is there when the command is over.
run() {
    timeout --kill-after=5 "$(cat "$1/seconds")" bash "$1/command" > "$1/output" 2>&1 < /dev/null
    echo $? > "$1/over" && mv "$1/over" "$1/status"
}
while read -r name; do
    [ "$name" != off ] || break
    run "/shared/$name" &
done < /dev/vport*p1
busybox poweroff -f
LAST
# The kernel's helpers have the root of the first process.
exec chroot /root /bin/bash /run/last
INIT
    chmod 755 first/init
    (cd first && find . | cpio -o -H newc --quiet) > first.cpio
    rm -r first
}

# Boots it on a network device that exists, and waits until it takes commands. The files of
# DIR/shared are /shared there.
start_guest() { # start_guest DIR TAP
    guest_dir=$1
    rm -rf "$guest_dir/shared" "$guest_dir/port.in" "$guest_dir/port.out"
    mkdir -p "$guest_dir/shared"
    echo "address=$guest_address" > "$guest_dir/shared/network"
    mkfifo "$guest_dir/port.in" "$guest_dir/port.out"
    # Open both ways, so that a guest that is gone makes no writer wait.
    exec {guest_port}<> "$guest_dir/port.in"
    qemu-system-x86_64 -M pc,accel=tcg -cpu max -smp 2 -m 1536 -nodefaults \
        -no-user-config -display none -no-reboot -kernel "$GUEST/vmlinux" \
        -initrd "$GUEST/first.cpio" -append "console=ttyS0 quiet panic=-1 net.ifnames=0" \
        -serial "file:$guest_dir/console" \
        -device virtio-serial-pci -chardev "pipe,id=port,path=$guest_dir/port" \
        -device virtserialport,chardev=port,nr=1 \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=machine \
        -fsdev local,id=shared,path="$guest_dir/shared",security_model=none \
        -device virtio-9p-pci,fsdev=shared,mount_tag=shared \
        -fsdev local,id=modules,path="$GUEST/unpacked/lib/modules",security_model=none,readonly=on \
        -device virtio-9p-pci,fsdev=modules,mount_tag=modules \
        -netdev "tap,id=net,ifname=$2,script=no,downscript=no" \
        -device virtio-net-pci,netdev=net,romfile= < /dev/null > "$guest_dir/log" 2>&1 &
    guest_pid=$!
    guest 180 true && guest 20 "date -s @$(date +%s.%N)" > /dev/null || return 1
    # At places that other users than root reach.
    guest 20 "
        mkdir -p /programs/openafs /programs/guest
        mount --bind '$OPENAFS' /programs/openafs
        mount --bind '$GUEST/unpacked' /programs/guest"
}

# Runs a command in it as root, for so many seconds at most; prints its output and ends as it did.
guest() { # guest SECONDS COMMAND
    local dir until=$((SECONDS + $1 + 60)) status
    dir=$(mktemp -d "$guest_dir/shared/command.XXXXXX")
    echo "$1" > "$dir/seconds"
    printf '%s\n' "$2" > "$dir/command"
    echo "${dir##*/}" >&"$guest_port"
    until [ -e "$dir/status" ]; do
        sleep 0.02
        [ $SECONDS -lt $until ] && kill -0 "$guest_pid" 2> /dev/null || {
            cat "$dir/output" 2> /dev/null
            echo "the guest gave no answer: $(tail -n 5 "$guest_dir/console")"
            return 124
        }
    done
    cat "$dir/output"
    status=$(cat "$dir/status")
    rm -rf "$dir"
    return "$status"
}

stop_guest() {
    [ -n "${guest_pid:-}" ] || return 0
    echo off >&"$guest_port"
    local n
    for n in $(seq 100); do
        kill -0 "$guest_pid" 2> /dev/null || break
        sleep 0.1
    done
    kill -9 "$guest_pid" 2> /dev/null || true
    wait "$guest_pid" 2> /dev/null || true
    exec {guest_port}>&-
    guest_pid=
}

# Mounts a cell's root volume on /afs by kafs.
guest_kafs() { # guest_kafs CELL ADDRESS
    guest 60 "modprobe kafs rootcell=$1:$2 && mount -t afs '#$1:root.cell.' /afs"
}

# Starts OpenAFS's client with a cache in memory; the cell is /afs/CELL.
guest_openafs() { # guest_openafs CELL ADDRESS
    guest 90 "modprobe openafs
        mkdir -p /etc/openafs
        echo $1 > /etc/openafs/ThisCell
        printf '>%s #\n%s #server.%s\n' '$1' '$2' '$1' > /etc/openafs/CellServDB
        echo /afs:/tmp/cache:100000 > /etc/openafs/cacheinfo
        $(guest_programs) afsd -memcache -blocks 100000 -dynroot -nosettime \
            -daemons 2 -fakestat"
}

# Prints the variables with which OpenAFS's programs run there.
guest_programs() {
    local libraries
    libraries=$(openafs_libraries)
    echo "env PATH=/programs/openafs/usr/bin:/programs/openafs/sbin:/usr/sbin:/usr/bin:/sbin:/bin" \
        "LD_LIBRARY_PATH=${libraries//"$OPENAFS"//programs/openafs}"
}

# A user's ticket, and a token of it for the client. One who is not root has both alone.
guest_login() { # guest_login CLIENT CELL REALM USER PASSWORD UID
    local token="$(guest_programs) aklog -c $2 -k $3"
    [ "$1" != kafs ] || token="/programs/guest/usr/bin/aklog-kafs $2 $3"
    guest 60 "exec setpriv --reuid $6 --regid $6 --clear-groups env KRB5CCNAME=/tmp/tickets.$6 \
        KRB5_CONFIG=/shared/krb5.conf bash -c 'echo $5 | kinit $4 > /dev/null && $token'"
}
