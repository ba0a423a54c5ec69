#!/bin/bash
# OpenAFS's verbs for a client and for the location of volumes, on a server and a mount over TCP,
# which has a disk cache: that they change what they name, and refuse what they cannot do.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
needs_root
base=$WORK/verbs dir=$WORK/verbs/cell at=$WORK/verbs/mnt list=$WORK/verbs/cells.toml
trap 'within 60 "$RIALTO" umount --lazy --dir "$base/mounter" "$at" > /dev/null 2>&1
    within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1' EXIT
mkdir -p "$at" "$base/mounter"
chmod 755 "$base" "$WORK"
vos() { within 60 "$RIALTO" vos --dir "$dir" "$@"; }
fs() { within 60 "$RIALTO" fs "$@"; }
cache() { fs getcacheparms --json -path "$at" | grep -o "\"$1\":[0-9]*" | cut -d: -f2; }
check "a cell" within 90 "$RIALTO" up --no-mount --dir "$dir" --cell verbs.test \
    --listen 127.0.0.1:0 --trust 127.0.0.1 --trust-root
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$dir/cell.toml")
check "a mount as of another machine" within 60 "$RIALTO" mount --daemon --dir "$base/mounter" \
    --cache-size 64MiB --cells "$list" "$address" "$at"
cd "$at" || exit 1

# The disk cache.
head -c 24M /dev/urandom > "$at/big"
fs flush "$at/big" > /dev/null
cksum < "$at/big" > "$base/sum"
cached_more_than() { [ "$(cache used_bytes)" -gt "$1" ]; }
for _ in $(seq 100); do cached_more_than 10000000 && break; sleep 0.1; done
check "a file that was read is in the disk cache" cached_more_than 10000000
check "its size is set" says "New cache size set" 0 fs setcachesize 1000
cached_less_than() { [ "$(cache used_bytes)" -le "$1" ] && [ "$(cache bytes_max)" -eq "$1" ]; }
check "and what does not fit is gone" cached_less_than 1024000
check "the file is read as it was" diff <(cksum < "$at/big") "$base/sum"
check "-reset brings the first size back" fs cachesize -reset
check "which it has" [ "$(cache bytes_max)" -eq $((64 << 20)) ]
check "a size is needed" says "the size is missing" 2 fs setcachesize
joe() { within 60 setpriv --reuid 4711 --regid 4711 --clear-groups "$base/rialto" fs "$@"; }
cp "$RIALTO" "$base/rialto" && chmod 755 "$base/rialto"
check "an ordinary user sets none" says "only root may" 1 joe setcachesize 1000 -path "$at"
check "nor by the attribute" [ "$(cache bytes_max)" -eq $((64 << 20)) ]

# Everything cached is dropped, and nothing is lost.
vos create home.one > /dev/null && fs mkmount one home.one
echo before > one/file
cksum < big > /dev/null
check "flushall" fs flushall
# A body that the kernel has stays, and the kernel tells of a close a moment after it.
dropped() { fs flushall && [ "$(cache used_bytes)" -eq 0 ]; }
for _ in $(seq 100); do dropped > /dev/null && break; sleep 0.1; done
check "drops the disk cache" [ "$(cache used_bytes)" -eq 0 ]
check "and loses nothing" [ "$(cat one/file)" = before ]

# The connection.
check "it is encrypted" says "Security level is currently crypt (data security)." 0 fs getcrypt
check "which a script may ask for" fs setcrypt on
check "and cannot end" says "a mount stays as it was made" 1 fs setcrypt off
number=$(fs uuid --json | grep -o '[0-9a-f]\{32\}')
check "the server knows this client by its number" says "$number" 0 \
    within 30 "$RIALTO" status --json --dir "$dir"
check "shown as a UUID" says "UUID: ${number:0:8}-${number:8:4}-" 0 fs uuid
check "stores wait for nothing" says "Default store asynchrony is 0 kbytes." 0 fs storebehind
check "0 is accepted" fs sb -allfiles 0
check "more is refused, with the reason" says "when close(2) returns" 1 fs storebehind \
    -kbytes 100 -files big

# Fids of links.
ln -s one/file link
fid() { fs getfid "$@" --json | grep -o '"fid":"[^"]*"'; }
target=$(fid one/file) own=$(fid -literal link)
check "a link has the fid of its target" [ "$(fid link)" = "${target:-none}" ]
check "and one of its own" [ "${own:-$target}" != "$target" ]
ln -s nowhere dangling
check "so does one that leads nowhere" says "File dangling (" 0 fs getfid -literal dangling
check "primarycell is wscell" says "belongs to cell 'verbs.test'" 0 fs primarycell

# Cells.
check "the tree's cell is listed" says "Cell verbs.test on hosts $(hostname)." 0 fs listcells
check "by its address too" says "Cell verbs.test on hosts $address." 0 fs listcells -numeric
check "a cell is entered" fs newcell far.test 127.0.0.1 other.test:7621 --file "$list"
check "and listed" says "Cell far.test on hosts 127.0.0.1:7620 other.test:7621." 0 \
    fs listcells --file "$list"
check "the mount finds it at once" fs newcell -name self.test -servers "$address" --file "$list"
fs mkmount abroad root.cell -cell self.test
says_other() { within 30 ls "$at/abroad/" 2>&1 | grep -q big; }
check "and leads there" says_other
check "other users do not write the list" says "run it as root" 1 joe newcell evil.test x:1 \
    --file "$list"
check "a name that is none is refused" says "cannot be a cell's name" 1 fs newcell '../x' y:1 \
    --file "$list"

# Where volumes are.
check "the size of a dump is told" says "dump_size: " 0 vos size home.one -dump
vos dump home.one -file "$base/dump" > /dev/null
size() { vos size home.one -dump | sed -n 's/^dump_size: //p'; }
check "and is that of the dump" [ "$(size)" -eq "$(stat -c %s "$base/dump")" ]
check "nothing is left of it" eval 'left=$(vos listvol) && ! grep -q dumping <<< "$left"'
check "a site of a number" vos addsite "$(hostname)" vicep home.one -roid 536999999
check "which its copy has" says "home.one.readonly" 0 eval \
    "vos release home.one && vos examine 536999999"
vos remsite -server "$(hostname)" -id home.one > /dev/null
check "another number is refused" says "536999999" 1 vos addsite "$(hostname)" vicep home.one \
    -roid 7
check "a copy that is there is valid without a release" eval \
    'vos addsite "$(hostname)" vicep home.one -valid && places=$(vos listvldb home.one) &&
        grep -q "RO Site" <<< "$places" && ! grep -q "Not released" <<< "$places"'
check "no copy, no valid site" says "so the site is not valid" 1 vos addsite "$(hostname)" vicep \
    root.cell -valid
vos delentry home.one > /dev/null
check "one volume is entered again" says "changed" 0 vos syncvldb -volume home.one
check "it is there" says "RWrite" 0 vos listvldb home.one
check "one that no server has is told" says "no server has it" 1 vos syncvldb -volume absent
check "a place is recorded where the volume is" says "recorded there already" 0 \
    vos changeloc "$(hostname)" vicep home.one
check "not elsewhere" says "finding the partition" 1 vos changeloc "$(hostname)" other home.one
check "what is left out says why" says "'vos --help' lists all verbs" 2 vos apropos home
check "-encrypt is of the connection, as a note says" says "-encrypt-at-rest encrypts" 0 \
    vos create home.two -encrypt
check "the disk has another option" says "At rest     encrypted" 0 eval \
    "vos create home.three -encrypt-at-rest > /dev/null; vos examine home.three"
cd /
finish
