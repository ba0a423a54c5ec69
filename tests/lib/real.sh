# What the real-world tests share. Sourced by tests/real/run.sh and each part; bash, strict.
#
# A part finds: A and B, two mounts of one cell (the same directory twice with --on); CELL, the
# cell's directory (empty with --on); RIALTO and TOOLS, programs; CACHE, a directory outside for
# what was downloaded; WORK, a directory outside any mount for logs; QUICK, yes or no. It prints
# PASS and FAIL lines and ends with `finish`. What cannot run here it names in a SKIP line with the
# reason: such a line counts as skipped, never as passed, and with CI=true fails the gate
# (scripts/check.sh).

#
# RIALTO_SEED, if it is set, is where each part's random numbers begin.

set -uo pipefail
failures=0
[ -z "${RIALTO_SEED:-}" ] || RANDOM=$((RIALTO_SEED % 32768))

pass() { printf 'PASS %s: %s\n' "$PART" "$*"; }
fail() { printf 'FAIL %s: %s\n' "$PART" "$*"; failures=$((failures + 1)); }
skip() { printf 'SKIP %s: %s\n' "$PART" "$*"; }
note() { printf '     %s: %s\n' "$PART" "$*"; }
finish() { touch "$WORK/finished.$PART"; [ "$failures" -eq 0 ]; exit; }

# drop_other_mounts: in a mount name space of this part's own. Mounts of other tests were copied
# into it, and would live on here when those unmount them: a mount below another waits for that.
drop_other_mounts() {
    findmnt -rno TARGET -t fuse.rialto |
        while read -r other; do umount --lazy "$other" 2> /dev/null; done
}

# check WHAT COMMAND...: the command's output is shown only when it fails.
check() {
    # Names that no part uses: a function that is run here sees them.
    local check_what=$1 check_log=$WORK/check.$BASHPID.log check_status
    shift
    "$@" > "$check_log" 2>&1
    check_status=$?
    if [ $check_status -eq 0 ]; then pass "$check_what"; return 0; fi
    fail "$check_what (exit code $check_status)"
    tail -n 40 "$check_log" | sed 's/^/     | /'
    return 1
}

# says TEXT CODE COMMAND...: the command ends with that code and says that text.
says() {
    local says_text=$1 says_code=$2 says_said says_got
    shift 2
    says_said=$("$@" 2>&1)
    says_got=$?
    [ $says_got -eq "$says_code" ] && grep -qF -- "$says_text" <<< "$says_said" && return 0
    echo "ended with $says_got, not $says_code, or did not say '$says_text': $says_said"
    return 1
}
refused() { ! "$@"; }

# Runs a command that must not take longer than so many seconds; a mount that hangs must not hang
# the tests.
within() { timeout --kill-after=10 "$@"; }

server_pid() { head -n 1 "$CELL/server.pid"; }

# The file that names the process of the mount at $1; names are escaped as in cell.rs.
mount_pid() {
    local file
    for file in "$CELL"/mounts/*.pid; do
        [ -e "$file" ] || continue
        local pid; pid=$(head -n 1 "$file")
        tr '\0' '\n' < "/proc/$pid/cmdline" 2>/dev/null | grep -qxF -- "$1" &&
            { echo "$pid"; return 0; }
    done
    return 1
}

tcp_address() { sed -n 's/^listen = "\(.*\)"/\1/p' "$CELL/cell.toml"; }

start_server() { within 90 "$RIALTO" server --daemon --dir "$CELL"; }
mount_a() { within 60 "$RIALTO" mount --daemon --dir "$CELL" "unix:$CELL/server.sock" "$A"; }
# The second client comes over TCP, as from another machine.
mount_b() { within 60 "$RIALTO" mount --daemon --dir "$CELL" "$(tcp_address)" "$B"; }

kill_server() { kill -9 "$(server_pid)"; }

# Kills the process behind a mount and takes the dead mount away.
kill_mount() {
    local pid; pid=$(mount_pid "$1") || { echo "no process serves $1" >&2; return 1; }
    kill -9 "$pid"
    within 30 "$RIALTO" umount --lazy --dir "$CELL" "$1" || return 1
    # A loaded machine takes a moment to end it, and until then its identity is in use.
    until is_over "$pid"; do sleep 0.05; done
}

# Whether a process is over, though its parent may not have asked for its end yet.
is_over() { [ ! -e "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2> /dev/null; }

# Parts that need more than a directory say so and end well.
needs_cell() {
    if [ -z "$CELL" ]; then skip "needs a cell of its own, not a directory"; finish; fi
}
needs_root() {
    if [ "$(id -u)" != 0 ]; then skip "only root can do this"; finish; fi
}

# three_servers NAME: a cell of three servers as processes, in directories A, B and C below `base`;
# the second is called two, the third three. They stop when the part ends, and what is mounted at
# DIR/tree below `base` goes.
three_servers() {
    base=$WORK/$1
    mkdir -p "$base"
    A=$base/a B=$base/b C=$base/c
    trap end_three_servers EXIT
    check "the first server" within 90 "$RIALTO" up --no-mount --dir "$A" --cell "$1.test" \
        --listen 127.0.0.1:0
    address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$A/cell.toml")
    check "a second joins it" within 90 "$RIALTO" up --dir "$B" --join "$address" \
        --keys "$A/keys" --server two
    check "and a third" within 90 "$RIALTO" up --dir "$C" --join "$address" --keys "$A/keys" \
        --server three
}
end_three_servers() {
    local dir
    for dir in "$base"/*/; do
        within 30 "$RIALTO" umount --lazy --dir "$A" "$dir/tree" > /dev/null 2>&1; done
    for dir in "$C" "$B" "$A"; do
        within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done
}
