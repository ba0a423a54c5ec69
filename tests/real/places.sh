#!/bin/bash
# One volume at a hundred places: calls of all kinds, each through one of the places, compared with
# a directory of the disk that is bound to as many places, and looked at through another place.
# SEED repeats a run; the short form always does the same calls.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
if [ "$QUICK" = yes ]; then
    calls=20000 seed=${SEED:-3}
else
    calls=1000000 seed=${SEED:-$RANDOM}
fi
places=100
reference=$WORK/places.reference
vos() { within 60 "$RIALTO" vos "$@" --dir "$CELL"; }
# Lazily: what a failed run left open must not keep the places.
trap 'for place in "$reference"/*/*; do umount -l "$place" 2> /dev/null; done' EXIT

# Half of the places are in the first volume, half in one that is at two places itself.
make_places() {
    vos create places && vos create places.holder && mkdir -p "$A/places/first" &&
        within 60 "$RIALTO" fs mkmount "$A/places/holder" places.holder &&
        within 60 "$RIALTO" fs mkmount "$A/places/again" places.holder &&
        mkdir "$A/places/holder/second" || return
    local i
    for i in $(seq $((places / 2))); do
        within 60 "$RIALTO" fs mkmount "$A/places/first/p$i" places -rw &&
            within 60 "$RIALTO" fs mkmount "$A/places/holder/second/p$i" places -rw || return
    done
}
bind_places() {
    mkdir -p "$reference"/{tree,first,second}
    local place
    for place in $(seq $((places / 2))); do
        mkdir "$reference/first/p$place" "$reference/second/p$place" &&
            mount --bind "$reference/tree" "$reference/first/p$place" &&
            mount --bind "$reference/tree" "$reference/second/p$place" || return
    done
}
# random_calls SEED MOUNT OTHER COUNT
random_calls() {
    # The trees are empty at the beginning.
    find "$reference/tree" "$2/places/first/p1" -mindepth 1 -delete || return
    within 14400 "$TOOLS/exercise" calls --places "$2/places/first" "$2/places/again/second" \
        --reference "$reference/first" "$reference/second" \
        --other "$3/places/first/p3" --ops "$4" --seed "$1"
}

check "a volume at $places places" make_places
check "a directory of the disk at as many" bind_places
# A rename that is the first to enter a place may fail with EXDEV (docs/spec/mount.md, "Known
# differences").
check "each place is entered" sh -c "ls '$A'/places/first/p*/ '$A'/places/again/second/p*/ \
    '$B'/places/first/p*/ '$B'/places/again/second/p*/ > /dev/null"
check "$calls random calls, seed $seed" random_calls "$seed" "$A" "$B" "$calls"
check "$((calls / 4)) over the network, seed $seed" random_calls "$seed" "$B" "$A" $((calls / 4))
finish
