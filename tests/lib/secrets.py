"""Looks for secrets where none may be (tests/real/secrets.sh).

    secrets.py keys CELL                       keys of a cell's directory, a line each: NAME HEX
    secrets.py token PID NUMBER...             the token with one of these numbers as that process has it in memory, its signature, and its client's key
    secrets.py text NAME TEXT                  a password as such a line
    secrets.py plant LIST DIR                  puts each of the listed secrets into a file of its own, in each form
    secrets.py search LIST PATH...             names every file below the paths that has one of them in any form; ends with 1 if there is one
    secrets.py holds LIST NAME PID             ends with 0 if that process has that secret in memory

Forms: as it is, from behind, hexadecimal in small and capital letters, Base64 at each of the three places that it may begin at, and as Rust shows bytes in lists and in strings.
"""

import base64
import os
import re
import struct
import subprocess
import sys


def forms(secret):
    yield "bytes", secret
    yield "reversed", secret[::-1]  # as libraries keep large numbers
    yield "hex", secret.hex().encode()
    yield "HEX", secret.hex().upper().encode()
    for lead in range(3):
        # Letters that depend on what stands before or behind are left out.
        text = base64.b64encode(b"\0" * lead + secret)
        skip, end = (0, 2, 3)[lead], len(secret) + lead
        yield f"base64+{lead}", text[skip : end * 4 // 3]
        yield f"base64url+{lead}", text[skip : end * 4 // 3].replace(b"+", b"-").replace(b"/", b"_")
    yield "list", b", ".join(b"%d" % byte for byte in secret)
    yield "lines", b",\n".join(b"    %d" % byte for byte in secret)
    shown = b"".join(bytes([byte]) if 32 <= byte < 127 and byte not in b"\"'\\" else b"\\x%02x" % byte for byte in secret)
    yield "escaped", shown


def listed(path):
    with open(path) as lines:
        for line in lines:
            name, text = line.split()
            yield name, bytes.fromhex(text)


def private_part(path):
    shown = subprocess.run(["openssl", "pkey", "-in", path, "-noout", "-text"], capture_output=True, text=True, check=True).stdout
    digits = re.search(r"priv:\s*((?:[0-9a-f]{2}:?\s*)+)", shown).group(1)
    return bytes.fromhex(re.sub(r"[^0-9a-f]", "", digits)).lstrip(b"\0")


def keys(cell):
    for kind in ("tokens", "at-rest"):
        below = os.path.join(cell, "keys", kind)
        for name in sorted(os.listdir(below)):
            with open(os.path.join(below, name)) as file:
                print(f"{kind}/{name}", file.read().strip())
    for name in ("ca.key", "server.key"):
        print(name, private_part(os.path.join(cell, "keys", name)).hex())


def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as image:
        for line in maps:
            span, rights = line.split()[:2]
            first, last = (int(number, 16) for number in span.split("-"))
            if not rights.startswith("rw") or last > 1 << 63:
                continue
            # One read gives at most 2 GiB, and the buffers of io_uring take more.
            while first < last:
                size = min(last - first, PIECE)
                try:
                    image.seek(first)
                    yield image.read(size)
                except OSError:
                    pass  # gone meanwhile, or of a device
                first += size if first + size == last else size - OVERLAP


# What is looked for is shorter than what two pieces have in common.
PIECE, OVERLAP = 64 << 20, 4096

HEAD = struct.Struct("<BBBBIi16sqqq32s")
HEAD_TO_NUMBER = 12
ED25519 = bytes.fromhex("302e020100300506032b657004220420")


def is_key_of(seed, public):
    """Whether the public key of this Ed25519 key is that one."""
    made = subprocess.run(["openssl", "pkey", "-inform", "DER", "-pubout", "-outform", "DER"], input=ED25519 + seed, capture_output=True)
    return made.returncode == 0 and made.stdout.endswith(public)


def tokens(pieces, number):
    """Each token of that number, and the public key of its client."""
    for piece in pieces:
        at = piece.find(number)
        while at >= 0:
            begin = at - HEAD_TO_NUMBER
            head = piece[max(begin, 0) : begin + HEAD.size]
            if len(head) == HEAD.size and head[0] == 1:
                _, _, cell, name, *_, client = HEAD.unpack(head)
                whole = piece[begin : begin + HEAD.size + cell + name + 64]
                if whole[HEAD.size :][: cell + name].isascii():
                    yield whole, client
            at = piece.find(number, at + 1)


def client_key(pieces, public):
    """As it lies in memory: before its public half."""
    for piece in pieces:
        at = piece.find(public)
        while at >= 0:
            seed = piece[at - 32 : at]
            if at >= 32 and is_key_of(seed, public):
                return seed
            at = piece.find(public, at + 1)
    return None


def token(pid, *numbers):
    pieces = list(memory(pid))
    seen = []
    for number in numbers:
        raw = int(number, 16).to_bytes(16, "little")
        found = set(tokens(pieces, raw))
        seen.append(f"{number}: {sum(piece.count(raw) for piece in pieces)} times, {len(found)} tokens")
        # Of an earlier login only the token may be left.
        for whole, public in found:
            seed = client_key(pieces, public)
            if seed:
                print("token", whole.hex())
                print("signature", whole[-64:].hex())
                print("client-key", seed.hex())
                return
            seen[-1] += f", the public key {sum(piece.count(public) for piece in pieces)} times"
    megabytes = sum(map(len, pieces)) >> 20
    sys.exit(f"no token in {len(pieces)} pieces of memory, {megabytes} MiB: " + "; ".join(seen))


def plant(path, below):
    os.makedirs(below)
    for name, secret in listed(path):
        for form, text in forms(secret):
            with open(os.path.join(below, f"{name.replace('/', '-')}.{form}"), "wb") as file:
                file.write(b"before " + text + b" behind")


def files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for directory, below, names in os.walk(path):
            below[:] = [name for name in below if not os.path.ismount(os.path.join(directory, name))]
            for name in names:
                file = os.path.join(directory, name)
                if os.path.isfile(file) and not os.path.islink(file):
                    yield file


def search(path, *paths):
    wanted = {}
    for name, secret in listed(path):
        for form, text in forms(secret):
            wanted.setdefault(text, f"{name} ({form})")
    looked, hits = 0, 0
    for file in files(paths):
        with open(file, "rb") as bytes_of:
            content = bytes_of.read()
        looked += 1
        for text, what in wanted.items():
            if text in content:
                hits += 1
                print(f"{file}: {what}")
    print(f"{looked} files, {hits} hits")
    sys.exit(1 if hits else 0)


def holds(path, name, pid):
    secret = dict(listed(path))[name]
    sys.exit(0 if any(secret in piece for piece in memory(pid)) else 1)


verb, *words = sys.argv[1:]
if verb == "text":
    print(words[0], words[1].encode().hex())
else:
    {"keys": keys, "token": token, "plant": plant, "search": search, "holds": holds}[verb](*words)
