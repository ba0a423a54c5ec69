"""copy.py SERVER FILE PATH: copies a local file into a cell, with 8 operations in progress, and
reads it back to compare. copy.c and copy.rs do the same.
"""

import os
import sys

import rialto

PART = 1 << 20  # One operation moves at most 1 MiB.
IN_PROGRESS = 8


def for_each_part(size, buffers, begin, done):
    """Begins an operation for each part of the file, and waits for the earliest while each buffer
    has one. The tag of an operation is the offset of its part."""
    buffers, offset = list(buffers), 0
    with rialto.Group() as group:
        while offset < size or len(group):
            while offset < size and buffers:
                length = min(PART, size - offset)
                begin(buffers.pop(), offset, length, group=group, tag=offset)
                offset += length
            for completion in group.wait(1):
                if completion.error:
                    raise completion.error
                if completion.bytes != min(PART, size - completion.tag):
                    raise EOFError("the file became shorter meanwhile")
                done(completion.buffer.data[:completion.bytes], completion.tag)
                buffers.append(completion.buffer)


def main(server, local, path):
    source = os.open(local, os.O_RDONLY)
    size = os.fstat(source).st_size
    with rialto.Cell(server) as cell, cell.open(path, "w") as file:
        # Each operation has a buffer: the server fetches the bytes there, or places them there.
        memory = cell.memory(IN_PROGRESS * PART)
        buffers = [memory.buffer(PART) for _ in range(IN_PROGRESS)]

        def write(buffer, offset, length, **into):
            buffer.data[:length] = os.pread(source, length, offset)
            file.write_async(buffer, offset, length, **into)

        for_each_part(size, buffers, write, lambda data, offset: None)
        # Now the bytes survive the server's host, too.
        file.commit()

        def compare(data, offset):
            if os.pread(source, len(data), offset) != data:
                raise ValueError("they differ")

        for_each_part(size, buffers, file.read_async, compare)
    print(f"{size} bytes, and the cell has the same")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("copy.py SERVER FILE PATH")
    main(*sys.argv[1:])
