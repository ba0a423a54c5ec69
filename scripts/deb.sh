#!/bin/bash
# deb.sh [OUT]: packages the program that is built for Debian: rialto-common, rialto-client and
# rialto-server, into OUT [default: deb below the target directory].
# RIALTO is the program [default: target/release/rialto].
# DEB_VERSION is the version of the packages [default: that of Cargo.toml, with -1].
# DEB_BUILD_OPTIONS=noautodbgsym leaves the packages with debugging symbols out.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
rialto=${RIALTO:-$target/release/rialto}
out=$(realpath -m "${1:-$target/deb}")
of_cargo=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
version=${DEB_VERSION:-$of_cargo-1}
command -v dh > /dev/null ||
    { echo "deb: debhelper is missing: 'scripts/setup.sh deb' gets it" >&2; exit 1; }
[ -x "$rialto" ] || { echo "deb: $rialto is not built: 'make build'" >&2; exit 1; }

work=$(mktemp -d -t rialto-deb.XXXXXX)
trap 'rm -rf "$work"' EXIT
tree=$work/rialto
mkdir -p "$tree"
cp -r packaging/debian "$tree/debian"
# The last commit's, so that one tree makes one package.
when=$(git log -1 --format=%ct 2> /dev/null || date +%s)
cat > "$tree/debian/changelog" << END
rialto ($version) unstable; urgency=medium

  * CHANGELOG.md has the changes.

 -- Rialto maintainers <maintainers@rialto.invalid>  $(LC_ALL=C date -u -R -d "@$when")
END
export SOURCE_DATE_EPOCH=$when

staged=$tree/staged
install -D -m 755 "$rialto" "$staged/usr/bin/rialto"
install -D -m 755 packaging/dump-volumes "$staged/usr/libexec/rialto/dump-volumes"
for file in cells.toml dump.conf; do
    install -D -m 644 "packaging/$file" "$staged/etc/rialto/$file"; done
"$rialto" man "$staged/usr/share/man/man1"
share=$staged/usr/share
mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" \
    "$share/fish/vendor_completions.d"
"$rialto" completions bash > "$share/bash-completion/completions/rialto"
"$rialto" completions zsh > "$share/zsh/site-functions/_rialto"
"$rialto" completions fish > "$share/fish/vendor_completions.d/rialto.fish"
install -D -m 644 packaging/pam/rialto "$share/pam-configs/rialto"
for unit in packaging/systemd-user/*; do
    install -D -m 644 "$unit" "$staged/usr/lib/systemd/user/$(basename "$unit")"; done
for unit in packaging/systemd/*.{service,timer}; do
    case $(basename "$unit") in
        rialto-keeper.* | rialto-mount@.*) package=rialto-client ;;
        *) package=rialto-server ;;
    esac
    name=$(basename "$unit")
    # debhelper's name for a unit of a package.
    sed 's|/usr/local/|/usr/|' "$unit" > "$tree/debian/$package.${name/@./@.}"
done
mkdir -p "$out"
(cd "$tree" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps) \
    > "$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }
mv "$work"/*.deb "$out/"
printf '%s\n' "$out"/rialto-*_"$version"_*.deb
