# OpenAFS's own programs, unpacked and not installed: an installation would start its client. After
# tests/lib/real.sh; bash.

# Puts them into $OPENAFS, or fails. They stay in the cache.
get_openafs() {
    OPENAFS=$CACHE/openafs
    [ -e "$OPENAFS/complete" ] && return 0
    local packages=(openafs-client openafs-krb5 openafs-fuse libhcrypto5-heimdal
        libroken19-heimdal libfuse2)
    rm -rf "$OPENAFS"
    mkdir -p "$OPENAFS/packages"
    (cd "$OPENAFS/packages" && within 300 apt-get -q download "${packages[@]}") || return 1
    local package
    for package in "$OPENAFS"/packages/*.deb; do
        dpkg-deb -x "$package" "$OPENAFS" || return 1
    done
    rm -rf "$OPENAFS/packages"
    touch "$OPENAFS/complete"
}

# Runs one of them in the cell of which configure_openafs wrote the files.
openafs() { # openafs PROGRAM ARGUMENT...
    local libraries=("$OPENAFS"/usr/lib/*-linux-gnu "$OPENAFS"/lib/*-linux-gnu)
    LD_LIBRARY_PATH=$(IFS=:; echo "${libraries[*]}") \
        PATH=$OPENAFS/usr/bin:$OPENAFS/usr/sbin:$PATH within 60 "$@"
}

# Makes /etc/openafs, which must be private to the caller, that of a cell at one address.
configure_openafs() { # configure_openafs CELL ADDRESS
    mkdir -p /etc/openafs/server
    echo "$1" | tee /etc/openafs/ThisCell > /etc/openafs/server/ThisCell
    printf '>%s #\n%s #server.%s\n' "$1" "$2" "$1" | tee /etc/openafs/CellServDB \
        > /etc/openafs/server/CellServDB
}
