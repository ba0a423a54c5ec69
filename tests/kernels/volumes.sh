# Volumes that the client meets, and what is done with them while it works. Sourced by
# tests/kernels.sh.

second=
volume_mounts() {
    echo inner > "$here_at/inner/file"
    next_look
    check "a mount point leads into it" says_there inner "$there/inner/file"
    # OpenAFS's client is one file system, whatever volumes it shows.
    [ "$client" != kafs ] || check "it is another file system" at 60 \
        "[ \$(stat -c %d '$there/inner/.') != \$(stat -c %d '$there/.') ]"
    check "which is written" at 60 "echo changed > '$there/inner/file'"
    next_look
    check "as the mount sees" [ "$(cat "$here_at/inner/file")" = changed ]
}

read_only() {
    check "a backup volume" rialto vos backup "$second"
    check "is mounted" native_fs mkmount "$here_at/yesterday" "$second.backup"
    echo later > "$here_at/inner/file"
    next_look
    check "the backup has what was" says_there changed "$there/yesterday/file"
    check "the volume what is" says_there later "$there/inner/file"
    check "the backup is not written" says "Read-only file system" 1 \
        at 60 "echo x > '$there/yesterday/file'"
    check "a place for a read-only copy" rialto vos addsite host1 vicepb "$second"
    check "it is released" rialto vos release "$second"
    check "and mounted" native_fs mkmount "$here_at/released" "$second.readonly"
    next_look
    check "it has what was released" says_there later "$there/released/file"
    echo latest > "$here_at/inner/file"
    next_look
    check "and nothing later" says_there later "$there/released/file"
    check "until the next release" rialto vos release "$second"
    next_look
    check "which is seen at the next look" says_there latest "$there/released/file"
}

# kafs mounts any volume, and makes a root of all cells.
mounts_of_kafs() {
    mounted() { at 60 "mkdir -p $3 && mount -t afs -o $1 '$2' $3 && cat $3/$4; got=\$?
        umount $3; exit \$got"; }
    check "kafs mounts a read-only copy" says latest 0 \
        mounted ro "#$name:$second.readonly" /copy file
    check "and a backup" says changed 0 mounted ro "%$name:$second.backup" /backup file
    check "and a volume to write" says latest 0 mounted rw "%$name:$second" /volume file
    check "and all cells" says latest 0 mounted dyn none /cells "$name/$client/inner/file"
}

over_quota() {
    check "a small quota" rialto vos setfields "$second" -maxquota 1M
    # The FUSE program stores at the release, which tells no error.
    [ "$client" = fuse ] || check "is not exceeded" says "Disk quota exceeded" 1 at 120 \
        "dd if=/dev/zero of='$there/inner/big' bs=100k count=50 conv=fsync"
    check "a larger one" rialto vos setfields "$second" -maxquota 100M
    check "has room" at 120 "dd if=/dev/zero of='$there/inner/big' bs=100k count=50 conv=fsync"
    next_look
    check "the mount sees it" [ "$(stat -c %s "$here_at/inner/big")" = 5120000 ]
}

# Appends a line and makes a directory, again and again, until a file says that it is enough. Counts
# the rounds, and those in which all went well. Errors go to a file of the client's machine. A shell
# does not tell whether the close of what it wrote failed, which is when kafs stores it.
start_work() {
    at 20 "rm -f /tmp/enough; echo 0 > /tmp/good; nohup bash -c '
        n=0 good=0
        while [ ! -e /tmp/enough ]; do
            n=\$((n + 1)) failed=
            echo line \$n | dd of=$there/lines oflag=append conv=notrunc,fsync status=none ||
                { echo write \$n; failed=yes; }
            mkdir $there/dir.\$n && rmdir $there/dir.\$n || { echo dir \$n; failed=yes; }
            cat $there/lines > /dev/null || { echo read \$n; failed=yes; }
            if [ \$failed ]; then sleep 1; else good=\$((good + 1)); fi
            echo \$good > /tmp/good; echo \$n > /tmp/count
        done' > /tmp/work.log 2>&1 &"
}
# Until so many rounds more were good.
goes_on() { # goes_on ROUNDS
    at 240 "last=\$((\$(cat /tmp/good) + $1)); until [ \$(cat /tmp/good) -ge \$last ]; do
        sleep 0.2; done"
}
end_work() {
    at 120 "touch /tmp/enough; while pgrep -f 'while \[ ! -e /tmp/enough' > /dev/null; do
        sleep 0.2; done; cat /tmp/work.log; ! grep -q . /tmp/work.log"
}
all_lines() {
    next_look
    seq -f 'line %g' "$(at 20 'cat /tmp/count')" | diff - "$here_at/lines"
}

while_it_works() {
    check "it works" start_work
    check "and is seen to" eval "sleep 3; goes_on 3"
    to() { rialto vos move "$work" -toserver host1 -topartition "$1"; }
    check "the volume moves to another partition" to vicepb
    check "it goes on there" goes_on 3
    check "and back" to vicepa
    check "it goes on" goes_on 3
    check "no step failed" end_work
    check "each line is there once" all_lines
}

# While the server is away steps fail, as with AFS's own servers: its clients give up. No line that
# was written is lost or there twice, and the client goes on. OpenAFS's asks a server that was away
# again each three minutes, or when it is told to.
server_restarts() {
    rm "$here_at/lines"
    next_look
    check "it works" start_work
    check "and is seen to" eval "sleep 3; goes_on 3"
    kill -9 "$(head -n 1 "$cell/server.pid")"
    check "the server is killed and starts again" rialto server --daemon
    [ "$client" != openafs ] ||
        check "fs checkservers" at 120 "until $(guest_programs) fs checkservers |
            grep 'All servers are running'; do sleep 1; done"
    check "it goes on" goes_on 5
    end_work > "$WORK/work.log"
    note "$(grep -cE '^(write|dir|read) ' "$WORK/work.log") steps failed meanwhile"
    check "each line that was written is there once" written_lines
}
written_lines() {
    next_look
    seq -f 'line %g' "$(at 20 'cat /tmp/count')" |
        grep -vxF -f <(sed -n 's/^write /line /p' "$WORK/work.log") > "$WORK/lines"
    # One whose write failed may be there.
    grep -xF -f "$WORK/lines" "$here_at/lines" | diff "$WORK/lines" -
}

# Out of service the volume's files are errors or calls that wait; then they are there.
out_of_service() {
    echo there > "$here_at/inner/service"
    next_look
    check "a file is read" says_there there "$there/inner/service"
    check "its volume goes out of service" rialto vos offline "$second"
    check "nothing is written meanwhile" refused at 20 "echo x > '$there/inner/new'"
    check "it is back in service" rialto vos online "$second"
    # OpenAFS's client asks no more for a volume that was out of service, for ten minutes or until
    # it is told to.
    [ "$client" != openafs ] ||
        check "fs checkvolumes" at 60 "$(guest_programs) fs checkvolumes"
    check "and read" at 60 "until [ \"\$(cat '$there/inner/service')\" = there ]; do sleep 1; done"
    check "and written" at 60 "until echo back > '$there/inner/service'; do sleep 1; done"
    next_look
    check "as the mount sees" [ "$(cat "$here_at/inner/service")" = back ]
}

volumes() {
    second=inner.$client
    check "a second volume" rialto vos create host1 vicepb "$second" -model acl
    check "is mounted" native_fs mkmount "$here_at/inner" "$second"
    if [ "$client" = fuse ]; then native_fs setacl "$here_at/inner" system:anyuser rlidwk
    else native_fs setacl "$here_at/inner" joe rlidwka; fi
    volume_mounts
    read_only
    [ "$client" != kafs ] || mounts_of_kafs
    over_quota
    # The FUSE program cannot be told to look again at once.
    [ "$client" = fuse ] || out_of_service
    while_it_works
    server_restarts
}
