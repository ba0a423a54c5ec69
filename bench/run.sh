#!/bin/bash
# run.sh RIALTO [OPTION...]: all scenarios against the disk, libfuse's pass-through, and every peer
# that is installed (in the quick form only those that PEERS names), in one run; the page goes to
# bench/RESULTS.md. OPTIONs are those of `rialto bench`.
#   bench/run.sh target/release/rialto --quick                         in under a quarter of an hour
#   PEERS="gluster sshfs" bench/run.sh target/release/rialto --scenario unpack
#   PEERS=all bench/run.sh target/release/rialto                       an evening
# Where the disk waits for TRIM on every removal, native, Rialto and all others lie on an ext4 in a
# file, and it says so.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rialto=$1
shift
all=(sshfs gluster moosefs xrootd openafs)

against=()
if program=$("$here/peers/passthrough.sh"); then against=(--against "$program"); fi

case ${PEERS-default} in
    all) wanted=("${all[@]}") ;;
    default) case " $* " in *" --quick "*) wanted=() ;; *) wanted=("${all[@]}") ;; esac ;;
    *) read -ra wanted <<<"$PEERS" ;;
esac
for peer in ${wanted[@]+"${wanted[@]}"}; do
    # What is not installed says so itself, and is left out.
    if "$here/peers/$peer.sh" check; then against+=(--peer "$peer"); fi
done
# Peers' servers that run as users of their own do not get below a private home.
case " $* " in *" --dir "*) ;; *) [ ${#wanted[@]} -eq 0 ] || set -- \
    --dir "${BENCH_DIR:-/var/tmp/rialto-bench}" "$@" ;; esac
case " $* " in *" --results "*) ;; *) set -- --results "$here/RESULTS.md" "$@" ;; esac
exec "$rialto" bench ${against[@]+"${against[@]}"} --peers "$here/peers" "$@"
