# OpenAFS's own programs, unpacked and not installed: an installation would start its client. After
# tests/lib/real.sh; bash.

# Puts them into $OPENAFS, or fails. They stay in the cache.
get_openafs() {
    OPENAFS=$CACHE/openafs
    local packages=(openafs-client openafs-krb5 openafs-fuse openafs-dbserver openafs-fileserver
        libhcrypto5-heimdal libroken19-heimdal libasn1-8-heimdal libheimbase1-heimdal
        libkrb5-26-heimdal libhx509-5-heimdal libwind0-heimdal libheimntlm0-heimdal libfuse2)
    [ "$(cat "$OPENAFS/complete" 2> /dev/null)" = "${packages[*]}" ] && return 0
    rm -rf "$OPENAFS"
    mkdir -p "$OPENAFS/packages"
    (cd "$OPENAFS/packages" && within 300 apt-get -q download "${packages[@]}") || return 1
    local package
    for package in "$OPENAFS"/packages/*.deb; do
        dpkg-deb -x "$package" "$OPENAFS" || return 1
    done
    rm -rf "$OPENAFS/packages"
    echo "${packages[*]}" > "$OPENAFS/complete"
}

# Prints the directories of their libraries, as the loader takes them.
openafs_libraries() {
    local libraries=("$OPENAFS"/usr/lib/*-linux-gnu "$OPENAFS"/lib/*-linux-gnu)
    (IFS=:; echo "${libraries[*]}")
}

# Runs one of them in the cell of which configure_openafs wrote the files.
openafs() { # openafs PROGRAM ARGUMENT...
    LD_LIBRARY_PATH=$(openafs_libraries) \
        PATH=$OPENAFS/usr/bin:$OPENAFS/usr/sbin:$PATH within 60 "$@"
}

# Makes /etc/openafs, which must be private to the caller, that of a cell at one address.
configure_openafs() { # configure_openafs CELL ADDRESS
    mkdir -p /etc/openafs/server
    echo "$1" | tee /etc/openafs/ThisCell > /etc/openafs/server/ThisCell
    printf '>%s #\n%s #server.%s\n' "$1" "$2" "$1" | tee /etc/openafs/CellServDB \
        > /etc/openafs/server/CellServDB
}

openafs_places=()
# Starts OpenAFS's servers of a cell at an address, in a mount namespace of their own: database,
# file, volume and bos server, with a partition /vicepz. Their files are in DIR, their
# configuration in DIR/etc, with the keys of configure_openafs' cell. With DATABASE the cell's
# database servers are there, and none is started.
start_openafs_servers() { # start_openafs_servers DIR CELL ADDRESS [DATABASE]
    local dir=$1 cell=$2 address=$3 databases=${4:-$3}
    # The places where they find their files are the machine's: another run of the tests waits. The
    # servers have the lock open, so it ends with them.
    exec {openafs_lock}> "$CACHE/openafs.lock"
    flock --wait 300 "$openafs_lock" || return 1
    mkdir -p "$dir"/{etc/server,var/local,var/db,var/logs,log,vicepz}
    touch "$dir/vicepz/AlwaysAttach"
    cp /etc/openafs/server/{KeyFileExt,rxkad.keytab} "$dir/etc/server"
    echo "$cell" | tee "$dir/etc/ThisCell" > "$dir/etc/server/ThisCell"
    printf '>%s #\n%s #server.%s\n' "$cell" "$databases" "$cell" | tee "$dir/etc/CellServDB" \
        > "$dir/etc/server/CellServDB"
    touch "$dir/etc/server/UserList"
    echo "$address" > "$dir/var/local/NetInfo"
    local place
    for place in /var/lib/openafs /var/log/openafs /vicepz; do
        [ -d $place ] || { mkdir $place && openafs_places+=("$place"); }
    done
    LD_LIBRARY_PATH=$(openafs_libraries) DIR=$dir DATABASES=$databases ADDRESS=$address \
        BIN=$OPENAFS/usr/lib/openafs SBIN=$OPENAFS/usr/sbin PATH=$OPENAFS/usr/bin:$PATH \
        unshare --mount --propagation private bash -c '
            mount --bind "$DIR/etc" /etc/openafs
            mount --bind "$DIR/var" /var/lib/openafs
            mount --bind "$DIR/log" /var/log/openafs
            mount --bind "$DIR/vicepz" /vicepz
            cd /var/log/openafs
            if [ "$DATABASES" = "$ADDRESS" ]; then
                "$BIN/ptserver" -rxbind & echo $! >> "$DIR/pids"
                "$BIN/vlserver" -rxbind & echo $! >> "$DIR/pids"
            fi
            # A file server that has no database at its start registers only minutes later.
            for _ in $(seq 100); do
                udebug "$DATABASES" 7003 2> /dev/null | grep -q "Recovery state 1f" && break
                sleep 0.2
            done
            # It delays refusals by 3 s after ten of them, unless it is told not to.
            "$BIN/fileserver" -rxbind -L -p 16 -abortthreshold 0 & echo $! >> "$DIR/pids"
            "$BIN/volserver" -rxbind & echo $! >> "$DIR/pids"
            "$SBIN/bosserver" -nofork -rxbind & echo $! >> "$DIR/pids"
            touch "$DIR/started"
            wait' > "$dir/servers.log" 2>&1 &
    local n
    for n in $(seq 100); do
        openafs_there "$dir" vos listaddrs -noresolve 2> /dev/null | grep -q "$address" &&
            openafs_there "$dir" vos listpart "$address" > /dev/null 2>&1 && return 0
        sleep 0.3
    done
    return 1
}

# Runs a command in the cell of these servers, by its key.
openafs_there() { # openafs_there DIR vos ARGUMENT...
    local dir=$1 program=$2
    shift 2
    openafs "$program" "$@" -localauth -config "$dir/etc/server"
}

stop_openafs_servers() { # stop_openafs_servers DIR
    local pid
    [ -e "$1/pids" ] || return 0
    while read -r pid; do kill -9 "$pid" 2> /dev/null; done < "$1/pids"
    # They were made to mount on.
    [ ${#openafs_places[@]} -eq 0 ] || rmdir "${openafs_places[@]}"
}

# Mounts a cell with OpenAFS's client as a FUSE program. CONFIG has ThisCell and CellServDB; DIR
# gets the client's own files. Adds its process to the array afsd. A process that waits for such a
# client can only be killed after the client.
mount_openafs() { # mount_openafs CONFIG DIR MOUNT ROOT-VOLUME
    local config=$1 dir=$2 mount=$3 root=$4 pid
    mkdir -p "$dir/conf" "$dir/cache" "$mount"
    cp "$config"/{ThisCell,CellServDB} "$dir/conf"
    echo "$mount:$dir/cache:100000" > "$dir/conf/cacheinfo"
    openafs afsd.fuse -confdir "$dir/conf" -cachedir "$dir/cache" -mountdir "$mount" \
        -rootvol "$root" -blocks 100000 -files 4000 -stat 4000 -daemons 4 -nosettime \
        > "$dir/log" 2>&1
    for _ in $(seq 100); do
        mountpoint -q "$mount" && break
        sleep 0.1
    done
    pid=$(pgrep -f "^afsd.fuse .*-mountdir $mount ") && afsd+=("$pid")
}
