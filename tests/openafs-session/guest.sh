#!/bin/bash
# guest.sh build DIR            makes what boots a machine with OpenAFS's kernel client, in DIR
# guest.sh run DIR TAP COMMAND  boots it on that network device, runs the command in it as root, and
#                               ends as that did; the files of DIR/shared are /shared there
#
# For record.sh: the kernel of this machine need not have the client, so Debian's kernel runs in an
# emulated machine, whose root file system is this one's below a layer of its own. Nothing is
# installed. It needs root and the packages qemu-system-x86 busybox-static cpio kmod gcc make flex
# bison perl libelf-dev openafs-client. The module takes some minutes to build, once.
set -euo pipefail
dir=$(realpath "$2")
case $1 in
build)
    cd "$dir"
    package=$(apt-cache depends linux-image-amd64 |
        sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    version=${package#linux-image-}
    echo "$version" > version
    mkdir -p shared
    [ ! -e first.cpio ] || exit 0
    apt-get -q download "$package" openafs-modules-dkms "linux-headers-$version" \
        "linux-headers-${version%-amd64}-common" "linux-kbuild-${version%%.0-*}"
    for one in *.deb; do dpkg-deb -x "$one" unpacked; done
    depmod -b unpacked "$version"
    python3 - "unpacked/boot/vmlinuz-$version" vmlinux << 'PY'
import lzma, sys
image = open(sys.argv[1], "rb").read()
kernel = lzma.LZMADecompressor().decompress(image[image.find(b"\xfd7zXZ\0"):])
open(sys.argv[2], "wb").write(kernel)
PY
    # The headers where their packages would have them, for this build alone.
    export dir version
    [ -e openafs.ko ] || unshare --mount bash -ec '
        mount --make-rprivate /
        for of in src lib; do
            mount -t overlay -o "lowerdir=$dir/unpacked/usr/$of:/usr/$of" headers /usr/$of; done
        cp -r /usr/src/openafs-* built && cd built
        ./configure --disable-linux-syscall-probing --with-afs-sysname=amd64_linux26 \
            --with-linux-kernel-packaging \
            --with-linux-kernel-headers="/usr/src/linux-headers-$version"
        make' > build.log 2>&1
    [ -e openafs.ko ] || cp "$(find built -name openafs.ko | head -n 1)" .
    mkdir -p first/bin first/modules
    cp "$(command -v busybox)" first/bin/
    for module in virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay; do
        modprobe -d unpacked -S "$version" --show-depends $module
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
mkdir -p /root/shared /root/afs
mount -t 9p -o $way shared /root/shared
for of in dev proc sys; do mount -o bind /$of /root/$of; done
for of in tmp run var/tmp; do mount -t tmpfs $of /root/$of; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.94.0.2 netmask 255.255.255.0 up
cat > /root/run/last << 'LAST'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
bash /shared/command > /shared/output 2>&1 < /dev/null
echo $? > /shared/status
sync
busybox poweroff -f
LAST
# The kernel's helpers have the root of the first process.
exec chroot /root /bin/bash /run/last
INIT
    chmod 755 first/init
    (cd first && find . | cpio -o -H newc --quiet) > first.cpio ;;
run)
    tap=$3
    shift 3
    rm -f "$dir"/shared/{status,output}
    cp "$dir/openafs.ko" "$dir/shared/"
    printf '%s\n' "$*" > "$dir/shared/command"
    timeout 400 qemu-system-x86_64 -M pc,accel=tcg -cpu max -smp 2 -m 1024 -nodefaults \
        -no-user-config -display none -no-reboot -kernel "$dir/vmlinux" \
        -initrd "$dir/first.cpio" -append "console=ttyS0 quiet panic=-1 net.ifnames=0" \
        -serial "file:$dir/console" \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=machine \
        -fsdev local,id=shared,path="$dir/shared",security_model=none \
        -device virtio-9p-pci,fsdev=shared,mount_tag=shared \
        -netdev "tap,id=net,ifname=$tap,script=no,downscript=no" \
        -device virtio-net-pci,netdev=net,romfile= < /dev/null
    cat "$dir/shared/output"
    exit "$(cat "$dir/shared/status")" ;;
*) sed -n '2,10s/^# //p' "$0"; exit 2 ;;
esac
