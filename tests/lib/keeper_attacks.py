"""keeper_attacks.py ATTACK SOCKET PLACE: what a hostile process does at the socket of a keeper.

version  takes the place of its daemon, gives the records the version VERSION, and ends unasked;
         prints the version that they had
stranger connects as another user; the exit code is 0 if it is refused and gets nothing
"""
import os
import socket
import sys

attack, path, place = sys.argv[1:4]
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(30)


def held():
    """The descriptors that the keeper gives, by name."""
    found = {}
    connection.send(f'PLACE={place}'.encode())
    while True:
        text, fds, _, _ = socket.recv_fds(connection, 4200, 4)
        if not text or text == b'READY=1':
            return found
        found[text.split(b'FDNAME=')[1].decode()] = fds[0]


if attack == 'version':
    connection.connect(path)
    records = held()['records']
    print(os.pread(records, 8, 0).decode())
    os.pwrite(records, sys.argv[4].encode(), 0)
elif attack == 'stranger':
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    try:
        connection.connect(path)
    except PermissionError:
        sys.exit(0)
    sys.exit(1 if held() else 0)
