"""name_server.py ADDRESS PORT CELL SERVER_ADDRESS SERVER_PORT: a name server for tests, which knows
one cell: SRV records of _rialto._tcp.CELL, and the address of its server. All else is not there."""

import socket
import struct
import sys

address, port, cell, server_address, server_port = sys.argv[1:]
host = f"afs1.{cell}"
SRV, A, IN = 33, 1, 1


def packed(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def question(query):
    parts, at = [], 12
    while query[at]:
        parts.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    return ".".join(parts).lower(), struct.unpack("!H", query[at + 1 : at + 3])[0], query[12 : at + 5]


known = {
    (f"_rialto._tcp.{cell}", SRV): struct.pack("!HHH", 1, 1, int(server_port)) + packed(host),
    (host, A): socket.inet_aton(server_address),
}
listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listening.bind((address, int(port)))
print("ready", flush=True)
while True:
    query, sender = listening.recvfrom(4096)
    name, kind, asked = question(query)
    data = known.get((name, kind))
    is_there = data is not None or any(known_name == name for known_name, _ in known)
    head = struct.pack("!HHHHHH", struct.unpack("!H", query[:2])[0], 0x8580 | (0 if is_there else 3),
        1, int(data is not None), 0, 0)
    answer = b"" if data is None else (
        b"\xc0\x0c" + struct.pack("!HHIH", kind, IN, 60, len(data)) + data)
    listening.sendto(head + asked + answer, sender)
