# Debian source packages, fetched once and kept outside the checkout. Sourced.

# The mirror that this machine's apt uses.
debian_mirror() {
    local mirror
    mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        sed -nE 's/^(URIs: *|deb +(\[[^]]*\] +)?)(https?:[^ ]*\/debian)\/?( .*|$)/\3/p' | head -n 1)
    echo "${mirror:-http://deb.debian.org/debian}"
}

# fetch_source PACKAGE: prints the path of its upstream archive. Uses apt with its own lists, so
# that the machine's configuration stays as it is, and the mirror that the machine uses.
fetch_source() {
    local package=$1 place=$CACHE/sources found
    mkdir -p "$place"
    found=$(compgen -G "$place/${package}_*.orig.tar.*" | grep -v "\.asc$" | head -n 1)
    if [ -z "$found" ]; then
        local apt=$place/apt suite
        suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-stable}")
        mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
        echo "deb-src $(debian_mirror) $suite main" > "$apt/sources.list"
        local options=(-o "Dir::Etc::SourceList=$apt/sources.list" \
            -o Dir::Etc::SourceParts=/nonexistent
            -o "Dir::State=$apt/state" -o Dir::State::status=/var/lib/dpkg/status \
                -o "Dir::Cache=$apt/cache"
            -o APT::Sandbox::User=root)
        (cd "$place" && { [ -n "$(compgen -G "$apt/state/lists/*Sources*")" ] ||
            apt-get -qq "${options[@]}" update; } &&
            apt-get -qq "${options[@]}" source --download-only "$package") > "$place/$package.log" \
            2>&1 ||
            { echo "$package cannot be fetched: $(tail -n 1 "$place/$package.log")" >&2; return 1; }
        found=$(compgen -G "$place/${package}_*.orig.tar.*" | grep -v "\.asc$" | head -n 1)
    fi
    [ -n "$found" ] && echo "$found"
}
