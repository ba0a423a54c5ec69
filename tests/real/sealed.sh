#!/bin/bash
# A cell whose volumes are encrypted on the disk: what files hold is nowhere in the clear, is there
# with its keys, and is not without them.
. "$(dirname "$0")/../lib/real.sh"
needs_cell
cell=$WORK/sealed/cell open=$WORK/sealed/open at=$WORK/sealed/tree
trap 'for dir in "$cell" "$open" "$WORK"/sealed/{two,one}
    do within 60 "$RIALTO" down --lazy --dir "$dir" > /dev/null 2>&1; done' EXIT
secret="the launch is at dawn, on the far side of the hill"

# fill DIR: a short file, a long one, a link's target.
fill() {
    echo "$secret" > "$1/short" &&
        { for _ in $(seq 8000); do echo "$secret"; done } > "$1/long" &&
        ln -s "$secret" "$1/link" && sync -f "$1"
}
on_disk() { grep -rqaF "$secret" "$1/vicep"; }
# sums_on_disk DIR FILE: checksums of blocks of 16 KiB of the file lie below the directory: two that
# follow each other.
cat > "$WORK/sums.py" << 'PY'
import pathlib, struct, sys
table = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)
def crc32c(block):
    crc = 0xFFFFFFFF
    for byte in block:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
assert crc32c(b"123456789") == 0xE3069283
data = pathlib.Path(sys.argv[2]).read_bytes()
sums = [crc32c(data[at:at + 16384]) for at in range(0, len(data) - 16383, 16384)]
pairs = [struct.pack("<II", *pair) for pair in zip(sums, sums[1:])]
assert len(pairs) > 10
files = [path.read_bytes() for path in pathlib.Path(sys.argv[1]).rglob("*") if path.is_file()]
if not any(pair in file for pair in pairs for file in files):
    print("no sum of", len(files), "files")
    sys.exit(3)
PY
sums_on_disk() { python3 "$WORK/sums.py" "$1/vicep" "$2"; }
up() { within 90 "$RIALTO" up --dir "$cell" --at "$at" "$@"; }
down() { within 60 "$RIALTO" down --dir "$cell"; }

check "a cell that does not encrypt" within 90 "$RIALTO" up --dir "$open" --at "$at"
check "has files" fill "$at"
check "whose bytes lie on the disk" on_disk "$open"
check "m11: and the sums of their blocks" sums_on_disk "$open" "$at/long"
check "it goes" within 60 "$RIALTO" down --dir "$open"

check "m11: a cell that encrypts says where its keys lie" says "on the same disk" 0 up --encrypt
check "has a key that only its user reads" [ "$(stat -c %a "$cell/keys/at-rest/1.key")" = 600 ]
check "has the same files" fill "$at"
check "whose bytes are nowhere on the disk" refused on_disk "$cell"
check "a snapshot" within 60 "$RIALTO" vos snapshot create root.cell monday --dir "$cell"
printf 'X' | dd of="$at/long" bs=1 seek=5 conv=notrunc status=none
check "after which bytes changed" sync -f "$at"
check "shows none either" refused on_disk "$cell"
check "m11: nor the sum of any block" says "no sum of" 3 sums_on_disk "$cell" "$at/long"
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
wrapped() { for _ in $(seq 300); do
    grep -q 'newest key key=2 volumes=[1-9]' "$cell/logs/server.log" &&
        return 0; sleep 0.1; done; return 1; }
check "wraps the keys of volumes, while they are used" wrapped
check "both are listed" says '"at_rest":[1,2]' 0 "$RIALTO" keys list --json --dir "$cell"
rm "$cell/keys/at-rest/1.key"
check "down, without the old one" down
check "up, without the old one" up
check "all is there still" [ "$(cat "$at/short")$(sha256sum "$at/long" | cut -d' ' -f1)" = \
    "$secret$sum" ]
check "the link leads where it led" [ "$(readlink "$at/link")" = "$secret" ]

# One server, encrypted and plain volumes side by side; another that encrypts nothing of its own.
one=$WORK/sealed/one two=$WORK/sealed/two
vos() { within 90 "$RIALTO" vos --dir "$one" "$@"; }
check "a cell that encrypts where it is told to" within 90 "$RIALTO" up --no-mount --dir "$one" \
    --cell sealed.test --listen 127.0.0.1:0
address=$(sed -n 's/^listen = "\(.*\)"/\1/p' "$one/cell.toml")
check "a second server" within 90 "$RIALTO" up --dir "$two" --join "$address" --keys "$one/keys" \
    --server two
rm -rf "$two/keys/at-rest"
at_first() { vos create -server "$(hostname)" "$@"; }
check "an encrypted volume with access lists" at_first real.sealed -encrypt-at-rest -model acl \
    -acl system:anyuser read
check "a plain one" at_first real.open -plain-at-rest
check "a name that nobody has makes no volume" says "no such user or group" 1 at_first real.none \
    -model acl -acl no:such read
check "nor does a list where mode bits decide" says "say -model acl" 1 at_first real.none \
    -model posix -acl system:anyuser read
check "examined it says so" says "encrypted, with key 1 of its server" 0 vos examine real.sealed
check "and what decides" says "access lists" 0 vos examine real.sealed
check "as JSON" says '"encrypted":true' 0 vos examine real.sealed --json
check "the plain one too" says "not encrypted" 0 vos examine real.open
mounted() {
    mkdir -p "$2" && within 60 "$RIALTO" mount --daemon --dir "$one" \
        --volume "$1" "unix:$one/server.sock" "$2"; }
unmounted() { within 60 "$RIALTO" umount --dir "$one" "$1"; }
check "mounted" mounted real.sealed "$WORK/sealed/shut"
check "filled" fill "$WORK/sealed/shut"
sum=$(sha256sum "$WORK/sealed/shut/long" | cut -d' ' -f1)
check "nothing of it is on the disk" refused on_disk "$one"
check "released to the other server" eval \
    'vos addsite two vicep real.sealed > /dev/null && vos release real.sealed'
check "which shows it" says "encrypted, with key 1" 0 vos examine real.sealed.readonly
check "encrypted there with a key of its own" [ -f "$two/keys/at-rest/1.key" ]
check "nothing of it is on that disk" refused on_disk "$two"
check "taken off there" vos remove -server two -id real.sealed.readonly
check "unmounted" unmounted "$WORK/sealed/shut"
check "moved there" vos move real.sealed -toserver two -topartition vicep
check "it is encrypted still" says "encrypted, with key 1" 0 vos examine real.sealed
check "nothing of it is in the clear there" refused on_disk "$two"
check "mounted from there" mounted real.sealed "$WORK/sealed/shut"
check "all is there" [ "$(sha256sum "$WORK/sealed/shut/long" | cut -d' ' -f1)" = "$sum" ]
check "a dump of it" vos dump real.sealed -file "$WORK/sealed/dump"
check "restored at the server that encrypts nothing" vos restore two vicep real.again \
    -file "$WORK/sealed/dump"
check "is encrypted" says "encrypted, with key 1" 0 vos examine real.again
check "unmounted again" unmounted "$WORK/sealed/shut"
check "the plain volume's files" eval \
    'mounted real.open "$WORK/sealed/open.tree" && fill "$WORK/sealed/open.tree" &&
        unmounted "$WORK/sealed/open.tree"'
check "are on the disk: the search finds what is there" on_disk "$one"
check "the second server goes" within 60 "$RIALTO" down --dir "$two"

# A key server, by way of a command: what it says is kept in a file here, which stands for it.
vault=$WORK/sealed/vault
mkdir -p "$vault"
printf '%s\n' "1 $(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" > "$vault/1"
cat > "$vault/get-key" << SCRIPT
#!/bin/sh
echo "\$1" >> "$vault/log"
[ -e "$vault/sealed" ] && echo "the vault is sealed" >&2 && exit 1
[ -e "$vault/babbles" ] && echo "good morning" && exit 0
[ "\$1" = newest ] && cat "\$(ls "$vault"/[0-9]* | tail -n 1)" || cat "$vault/\$1"
SCRIPT
chmod +x "$vault/get-key"
check "down, for another keeper" within 60 "$RIALTO" down --dir "$one"
printf '\n[at-rest]\ncommand = ["%s"]\n' "$vault/get-key" >> "$one/cell.toml"
serve() { within 90 "$RIALTO" up --no-mount --dir "$one" --cell sealed.test; }
check "up with a key server" serve
check "a volume with its key" at_first real.vault -encrypt-at-rest
check "which examine shows" says "encrypted, with key 1" 0 vos examine real.vault
check "files in it" eval 'mounted real.vault "$WORK/sealed/vaulted" &&
    fill "$WORK/sealed/vaulted" && unmounted "$WORK/sealed/vaulted"'
check "keys are listed as the key server's" says "of the key server" 0 "$RIALTO" keys list \
    --dir "$one"
check "keys are not made here" says "makes them itself" 1 "$RIALTO" keys rotate at-rest --dir "$one"
check "no key of it is on the disk" refused grep -rqaF "$(cut -d' ' -f2 "$vault/1")" "$one"
reads() { mounted real.vault "$WORK/sealed/vaulted" ||
    return; cat "$WORK/sealed/vaulted/short"; local got=$?; unmounted "$WORK/sealed/vaulted"; \
    return $got; }
for trouble in sealed babbles; do
    check "down ($trouble)" within 60 "$RIALTO" down --dir "$one"
    touch "$vault/$trouble"
    check "up while the key server is in trouble: $trouble" serve
    check "its files are not to be read ($trouble)" refused reads
    check "no encrypted volume is made ($trouble)" says "gets no key to encrypt it with" 1 \
        at_first real.more -encrypt-at-rest
    check "plain ones are" at_first "real.plain.$trouble" -plain-at-rest
    rm "$vault/$trouble"
    check "without a restart all is there once it answers ($trouble)" eval \
        'for _ in $(seq 30); do reads > /dev/null 2>&1 &&
            break; sleep 1; done; [ "$(reads)" = "$secret" ]'
done
check "the log says what was wrong" grep -q "the vault is sealed" "$one/logs/server.log"
check "and no key" refused grep -qF "$(cut -d' ' -f2 "$vault/1")" "$one/logs/server.log"
printf '%s\n' "2 $(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')" > "$vault/2"
check "down, and the key server has a newer key" within 60 "$RIALTO" down --dir "$one"
check "up again" serve
rewrapped() { for _ in $(seq 100); do vos examine real.vault | grep -q "with key 2" &&
    return 0; sleep 0.3; done; return 1; }
check "all is wrapped with the newer one" rewrapped
rm "$vault/1"
check "the old one is not needed" [ "$(reads)" = "$secret" ]
check "the command was not run for each volume or reader" [ "$(wc -l < "$vault/log")" -lt 60 ]
finish
