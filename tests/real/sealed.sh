#!/bin/bash
# A cell whose volumes are encrypted on the disk: what files hold is nowhere in the clear, is there with its keys, and is not without them.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
cell=$WORK/sealed/cell open=$WORK/sealed/open at=$WORK/sealed/tree
trap 'for one in "$cell" "$open"; do within 60 "$RIALTO" down --lazy --dir "$one" > /dev/null 2>&1; done' EXIT
secret="the launch is at dawn, on the far side of the hill"

# fill DIR: a short file, a long one, a link's target.
fill() {
    echo "$secret" > "$1/short" &&
        { for _ in $(seq 8000); do echo "$secret"; done } > "$1/long" &&
        ln -s "$secret" "$1/link" && sync -f "$1"
}
on_disk() { grep -rqaF "$secret" "$1/vicep"; }
up() { within 90 "$RIALTO" up --dir "$cell" --at "$at" "$@"; }
down() { within 60 "$RIALTO" down --dir "$cell"; }

check "a cell that does not encrypt" within 90 "$RIALTO" up --dir "$open" --at "$at"
check "has files" fill "$at"
check "whose bytes lie on the disk" on_disk "$open"
check "it goes" within 60 "$RIALTO" down --dir "$open"

check "a cell that encrypts" up --encrypt
check "has a key that only its user reads" [ "$(stat -c %a "$cell/keys/at-rest/1.key")" = 600 ]
check "has the same files" fill "$at"
check "whose bytes are nowhere on the disk" refused on_disk "$cell"
check "a snapshot" within 60 "$RIALTO" vos snapshot create root.cell monday --dir "$cell"
printf 'X' | dd of="$at/long" bs=1 seek=5 conv=notrunc status=none
check "after which bytes changed" sync -f "$at"
check "shows none either" refused on_disk "$cell"
sum=$(sha256sum "$at/long" | cut -d' ' -f1)
check "down" down
check "up" up
check "the long file is what it was" [ "$(sha256sum "$at/long" | cut -d' ' -f1)" = "$sum" ]
check "the short one too" [ "$(cat "$at/short")" = "$secret" ]
check "down again" down
mv "$cell/keys/at-rest" "$cell/keys/away"
check "up without the keys" up
check "files are not to be read" refused cat "$at/short" "$at/long"
check "nor written" refused dd if=/dev/zero of="$at/other" bs=1k count=1 conv=fsync status=none
check "down once more" down
rm -rf "$cell/keys/at-rest"
mv "$cell/keys/away" "$cell/keys/at-rest"
check "up with the keys" up
check "all is there" [ "$(cat "$at/short")$(sha256sum "$at/long" | cut -d' ' -f1)" = "$secret$sum" ]
check "a newer key" says "made key 2" 0 "$RIALTO" keys rotate at-rest --dir "$cell"
wrapped() { for _ in $(seq 300); do grep -q 'newest key key=2 volumes=[1-9]' "$cell/logs/server.log" && return 0; sleep 0.1; done; return 1; }
check "wraps the keys of volumes, while they are used" wrapped
check "both are listed" says '"at_rest":[1,2]' 0 "$RIALTO" keys list --json --dir "$cell"
rm "$cell/keys/at-rest/1.key"
check "down, without the old one" down
check "up, without the old one" up
check "all is there still" [ "$(cat "$at/short")$(sha256sum "$at/long" | cut -d' ' -f1)" = "$secret$sum" ]
check "the link leads where it led" [ "$(readlink "$at/link")" = "$secret" ]
finish
