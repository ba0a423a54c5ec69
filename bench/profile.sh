#!/bin/bash
# profile.sh SCENARIO [OPTION...]: where the mount and the server spend their time in a scenario.
# Builds with frame pointers and symbols (the cargo profile `profiling`), records with perf, and
# writes below bench/profiles/:
#   SCENARIO.folded   one stack a line, with its samples
#   SCENARIO.svg      a flame graph, where inferno is there (`cargo install inferno`)
# SCENARIO.spans    time by place: for each process the share of each function with what it calls,
# and without
# OPTIONs are those of `rialto bench`, such as --quick. RIALTO=PATH profiles that binary and builds
# nothing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "profile: $*" >&2; exit 1; }
[ $# -ge 1 ] ||
    fail "usage: bench/profile.sh SCENARIO [OPTION...]; 'rialto bench --list' shows the scenarios"
scenario=$1
shift
command -v perf >/dev/null || fail "perf is missing; install linux-perf"
[ "$(id -u)" = 0 ] || fail "this needs root"

cd "$here/.."
out=$here/profiles
rialto=${RIALTO:-${CARGO_TARGET_DIR:-$PWD/target}/profiling/rialto}
[ -n "${RIALTO:-}" ] ||
    RUSTFLAGS="${RUSTFLAGS:-} -C force-frame-pointers=yes" cargo build --profile profiling \
    --locked -p rialto
"$rialto" bench --scenario "$scenario" --profile "$out" "$@" >/dev/null
data=$out/$scenario.data

# One line a stack: the thread's name first, then frames from the outermost in, then how many
# samples. perf prints the innermost frame first, indented, and an empty line behind each sample.
perf script -i "$data" --no-inline -F comm,ip,sym 2>/dev/null | awk '
    /^[^ \t]/ {
        thread = $0
        sub(/[ \t]+$/, "", thread)
        sub(/[ \t]+[0-9]+$/, "", thread)
        gsub(/[ ;]/, "_", thread)
        stack = ""
        next
    }
    /^[ \t]+[0-9a-f]/ {
        frame = $0
        sub(/^[ \t]+[0-9a-f]+[ \t]+/, "", frame)
        sub(/\+0x[0-9a-f]+$/, "", frame)
        gsub(/;/, ":", frame)
        stack = frame (stack == "" ? "" : ";" stack)
        next
    }
    thread != "" { count[thread (stack == "" ? "" : ";" stack)]++; thread = "" }
    END { if (thread != "") count[thread ";" stack]++; for (line in count) print line, count[line] }
' | sort >"$out/$scenario.folded"
[ -s "$out/$scenario.folded" ] || fail "nothing was recorded; is the scenario long enough?"

# Every function once a stack with all that it calls, and once where it is the innermost.
awk '
    {
        samples = $NF
        line = $0
        sub(/ [0-9]+$/, "", line)
        all += samples
        frames = split(line, frame, ";")
        delete seen
        for (i = 2; i <= frames; i++) {
            if (!(frame[i] in seen)) { seen[frame[i]] = 1; whole[frame[i]] += samples }
        }
        self[frame[frames]] += samples
        threads[frame[1]] += samples
    }
    END {
        print "samples " all
        print "\nthread: share"
        for (name in threads) printf "%6.1f %%  %s\n", 100 * threads[name] / all, name | "sort -rn"
        close("sort -rn")
        print "\nfunction: share with what it calls, share by itself"
        for (name in whole) if (whole[name] / all >= 0.01)
            printf "%6.1f %%  %6.1f %%  %s\n", 100 * whole[name] / all, 100 * self[name] / all,
                name | "sort -rn"
    }
' "$out/$scenario.folded" >"$out/$scenario.spans"
sed -n 1,40p "$out/$scenario.spans"

if command -v inferno-flamegraph >/dev/null; then
    inferno-flamegraph --title "$scenario" <"$out/$scenario.folded" >"$out/$scenario.svg"
    echo "flame graph: $out/$scenario.svg"
else
    echo "no flame graph: inferno is missing ('cargo install inferno' installs it);" \
        "$out/$scenario.spans has all spans"
fi
