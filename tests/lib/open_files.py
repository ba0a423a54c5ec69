"""open_files.py DIR STOP: programs that have files open in DIR, until the file STOP exists.

Each thread is one of them. No call of theirs may fail, and in the end each file has what was written.
Prints the longest pauses of a call, in milliseconds; the exit code is 1 if anything failed."""
import fcntl
import mmap
import os
import random
import sys
import threading
import time

place, stop = sys.argv[1], sys.argv[2]
failed, pauses = [], []
LINES = 'lines'
BLOCK = 4096


def goes_on():
    return not os.path.exists(stop)


def timed(call, *arguments):
    began = time.monotonic()
    result = call(*arguments)
    pauses.append(time.monotonic() - began)
    return result


def appender():
    """Appends numbered lines through one descriptor; another one reads them as they come."""
    path = os.path.join(place, LINES)
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen, number = os.open(path, os.O_RDONLY), 0
    text = b''
    while goes_on():
        line = b'line %d\n' % number
        wrote = timed(os.write, out, line)
        assert wrote == len(line), f'{wrote} bytes of {len(line)} were written'
        number += 1
        text += timed(os.read, seen, 1 << 16)
        if number % 50 == 0:
            timed(os.fsync, out)
    text += os.read(seen, 1 << 20)
    lines = text.decode().splitlines()
    wanted = [f'line {n}' for n in range(number)]
    assert lines == wanted, f'{len(lines)} lines are there, and {number} were written'


def blocks():
    """Writes blocks of one open file anywhere, and reads them again."""
    random.seed(7)
    fd = os.open(os.path.join(place, 'blocks'), os.O_RDWR | os.O_CREAT)
    there = {}
    while goes_on():
        at = random.randrange(500)
        data = random.randbytes(BLOCK)
        timed(os.pwrite, fd, data, at * BLOCK)
        there[at] = data
        old = random.choice(list(there))
        assert timed(os.pread, fd, BLOCK, old * BLOCK) == there[old], f'block {old} is another'
        if random.randrange(40) == 0:
            timed(os.fsync, fd)
    os.close(fd)
    with open(os.path.join(place, 'blocks'), 'rb') as file:
        for at, data in there.items():
            file.seek(at * BLOCK)
            assert file.read(BLOCK) == data, f'block {at} is another in the end'


def removed():
    """A file without a name keeps its bytes as long as it is open."""
    path = os.path.join(place, 'removed')
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, b'still here')
    os.unlink(path)
    while goes_on():
        assert timed(os.pread, fd, 100, 0) == b'still here'
        assert timed(os.fstat, fd).st_nlink == 0
        time.sleep(0.01)


def names():
    """Makes, renames, links and removes names; each call succeeds once."""
    number = 0
    base = os.path.join(place, 'names')
    timed(os.mkdir, base)
    os.chdir(base)
    while goes_on():
        name = f'{number}'
        timed(os.mkdir, name)
        with open(f'{name}/file', 'x', encoding='ascii') as file:
            file.write(name)
        timed(os.rename, f'{name}/file', f'{name}/other')
        timed(os.link, f'{name}/other', f'{name}/second')
        timed(os.unlink, f'{name}/other')
        with open(f'{name}/second', encoding='ascii') as file:
            assert file.read() == name
        assert timed(os.listdir, name) == ['second']
        if number % 3 == 0:
            timed(os.unlink, f'{name}/second')
            timed(os.rmdir, name)
        number += 1
    left = sorted(int(name) for name in os.listdir('.'))
    assert left == [n for n in range(number) if n % 3 != 0], 'other names are left'


def locks():
    """Has a range of a file locked all the time, and another one now and then."""
    fd = os.open(os.path.join(place, 'locked'), os.O_RDWR | os.O_CREAT)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
    while goes_on():
        timed(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
        timed(fcntl.lockf, fd, fcntl.LOCK_UN, 10, 100)
        time.sleep(0.005)


def maps():
    """Reads and writes a mapped file."""
    fd = os.open(os.path.join(place, 'mapped'), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 64 * BLOCK)
    with mmap.mmap(fd, 64 * BLOCK) as memory:
        number = 0
        while goes_on():
            at = number % 64 * BLOCK
            memory[at:at + 8] = number.to_bytes(8, 'little')
            if number % 64 == 63:
                timed(memory.flush)
                assert timed(os.pread, fd, 8, at) == number.to_bytes(8, 'little')
            number += 1
            time.sleep(0.001)


def short_map():
    """Has a file mapped that became short, by no descriptor; others open it and see the same."""
    path = os.path.join(place, 'short')
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(512 * BLOCK))
    os.fsync(fd)
    os.close(fd)
    # The kernel reports the close a moment later. From then on the body can be passed.
    time.sleep(0.5)
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 512 * BLOCK) as memory:
        os.ftruncate(fd, 2 * BLOCK)
        os.close(fd)
        number = 0
        while goes_on():
            for _ in range(5):
                number += 1
                word = number.to_bytes(8, 'little')
                memory[100:108] = word
                other = timed(os.open, path, os.O_RDONLY)
                assert timed(os.pread, other, 8, 100) == word, f'word {number} is another'
                os.close(other)
            other = timed(os.open, path, os.O_RDWR)
            timed(os.pwrite, other, word, 200)
            os.close(other)
            assert memory[200:208] == word, f'word {number} is another in the map'
            time.sleep(0.01)


def run(work):
    try:
        work()
    except Exception as error:  # pylint: disable=broad-except
        failed.append(f'{work.__name__}: {error!r}')


threads = [threading.Thread(target=run, args=(work,))
           for work in (appender, blocks, removed, names, locks, maps, short_map)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
longest = sorted(pauses, reverse=True)[:10]
print(f'{len(pauses)} calls; the longest took (ms):', *(int(pause * 1000) for pause in longest))
for text in failed:
    print(text)
sys.exit(1 if failed else 0)
