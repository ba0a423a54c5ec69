#!/bin/bash
# images.sh: builds the images rialto-server, rialto-client and rialto-etcd of the program's Debian
# packages, with podman or docker.
# BASE is the image that they begin with [default: docker.io/library/debian:bookworm-slim]; the
# packages must have been built on the same release of Debian.
# DEBS is a directory with the packages [default: they are built, by scripts/deb.sh].
# NETWORK is the network of the build, where apt gets packages [default: the engine's].
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "images: $*" >&2; exit 1; }
for engine in podman docker none; do
    ! command -v $engine > /dev/null || break; done
[ $engine != none ] || fail "neither podman nor docker is here: 'apt-get install podman'"

work=$(mktemp -d -t rialto-images.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir "$work/deb"
if [ -n "${DEBS:-}" ]; then
    cp "$DEBS"/rialto-{common,client,server}_*.deb "$work/deb"
else
    DEB_BUILD_OPTIONS=noautodbgsym scripts/deb.sh "$work/deb"
fi
cp -r packaging/container "$work/container"
options=()
[ -z "${BASE:-}" ] || options+=(--build-arg "BASE=$BASE")
[ -z "${NETWORK:-}" ] || options+=(--network "$NETWORK")
# Health checks are no part of OCI's own format.
[ $engine != podman ] || options+=(--format docker)
for image in server client etcd; do
    echo "images: rialto-$image"
    $engine build "${options[@]}" --target $image --tag "localhost/rialto-$image:latest" \
        --file "$work/container/Containerfile" "$work" > "$work/log" 2>&1 ||
        { cat "$work/log" >&2; fail "rialto-$image was not built"; }
done
