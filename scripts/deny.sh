#!/bin/bash
# deny.sh: the workspace's dependencies have the licenses and sources that deny.toml allows. Needs
# cargo-deny, which `scripts/setup.sh test` installs, and no network when cargo has all crates of
# Cargo.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/rialto-tests/cargo-deny/bin:$PATH
if ! command -v cargo-deny > /dev/null; then
    echo "SKIP deny: no cargo-deny (scripts/setup.sh test says why)"
    exit 0
fi
exec cargo deny --locked check bans licenses sources
