#!/bin/bash
# direct.sh [--bin DIR] [--rounds N] [--calls]: how fast a program reads through the direct access
# library, beside the floors of the machine.
#
#   --bin     where examples/rates was built [default: target/release]
#   --rounds  how often each is measured [default: 5]
#   --calls   count the system calls of both processes instead (needs perf and root)
#
# Prints the medians of the rounds. 'ring' is the same traffic and the same copies between two
# processes without anything else; 'copy' is one thread that copies. 'own' and 'server' are the
# processor time of the program and of the server for each operation; while it waits a process looks
# into memory for some microseconds before it sleeps, and that counts.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CARGO_TARGET_DIR:-$here/../target}/release rounds=5 calls=no
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;;
        --rounds) rounds=$2; shift ;;
        --calls) calls=yes ;;
        *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
rates=$bin/examples/rates
[ -x "$rates" ] || { echo "direct.sh: no $rates; 'cargo build --release -p rialto-client" \
    "--example rates' makes it"; exit 1; }
if [ $calls = yes ]; then
    command -v perf > /dev/null && [ "$(id -u)" = 0 ] ||
        { echo "not run: perf and root are needed"; exit 0; }
    # Of 1.5 s of one line, the begin and end of the programs included.
    perf stat -e raw_syscalls:sys_enter -x, -- "$rates" 4096 32 2> "$bin/rates.calls" ||
        exit 1
    awk -F, '{ print $1 " system calls of program and server together" }' "$bin/rates.calls"
    rm -f "$bin/rates.calls"
    exit
fi
all=$(mktemp)
trap 'rm -f "$all"' EXIT
for _ in $(seq "$rounds"); do
    "$rates" >> "$all" || exit 1
done
echo "| what | bytes | in flight | a second | MiB/s | own us | server us |"
echo "|---|---:|---:|---:|---:|---:|---:|"
awk '/^(direct|ring|copy) / { print $1, $2, $3 }' "$all" | sort -u | sort -k2n -k3n -k1 |
    while read -r what bytes depth; do
        median() {
            awk -v what="$what" -v bytes="$bytes" -v depth="$depth" -v column="$1" \
                '$1 == what && $2 == bytes && $3 == depth { print $column }' "$all" | sort -n |
                awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
        }
        echo "| $what | $bytes | $depth | $(median 4) | $(median 5) | $(median 6) | $(median 7) |"
    done
grep '^1000 writes' "$all" | sort -n -k8 | sed -n "$(((rounds + 1) / 2))p"
