"""A program of an ordinary user at the socket for users, for tests/real/direct.sh.

    user.py reads PATH      reads the file through memory that server and program share
    user.py refused PATH    is refused the file
"""

import sys

import rialto


def main():
    what, path = sys.argv[1:]
    with rialto.Cell() as cell:
        try:
            with cell.open(path) as file:
                memory = cell.memory(1 << 20)
                with rialto.Group() as group:
                    # The first operation goes over the socket, and the lane opens behind it.
                    for tag in range(100):
                        file.read_async(memory.buffer(1 << 12), 0, group=group, tag=tag)
                        (done,) = group.wait(1)
                        if done.error:
                            raise done.error
                        if cell.has_lane():
                            break
                    read = bytes(done.buffer.data[:done.bytes])
        except PermissionError as error:
            assert what == "refused", error
            return
        assert what == "reads" and read.startswith(b"for user"), (what, read)
        assert cell.has_lane(), "no lane"


main()
