#!/bin/bash
# run.sh RIALTO [OPTION...]: all scenarios against the disk and libfuse's pass-through; the page goes to bench/RESULTS.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rialto=$1
shift
against=()
if program=$("$here/peers/passthrough.sh"); then against=(--against "$program"); fi
exec "$rialto" bench "${against[@]}" --results "$here/RESULTS.md" "$@"
