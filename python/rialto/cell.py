"""Cells, files, memory and completion groups.

Model: as rialto.h has it. An object of the library ends with `close`, with the block of its `with`,
or when nothing refers to it any more. The bytes of a buffer stay while anything looks at them.
"""

import collections
import ctypes
import enum
import errno
import itertools
import os
import threading
import time
import weakref

from . import errors
from ._library import (
    CREATE,
    EXCLUSIVE,
    OPERATION_BYTES_MAX,
    TRUNCATE,
    CompletionRecord,
    EntryCallback,
    HowRecord,
    StatusRecord,
    check,
    failure,
    lib,
)

#: A wait is cut into slices of so many milliseconds, since a signal's handler runs between them.
_SLICE_MS = 100
#: At most so many completions are taken at once.
_TAKEN_MAX = 64
#: Memory for reads of many ranges.
_RANGES_BYTES = 8 << 20
_FLAGS = {
    "r": 0,
    "w": CREATE | TRUNCATE,
    "a": CREATE,
    "x": CREATE | EXCLUSIVE,
    "c": CREATE,
}
_USES = {"": 0, "r": 1, "w": 2, "rw": 3}
_KEY_BYTES = 16
#: Each lock has an owner of its own, by these numbers.
_OWNERS = itertools.count(1)


class Kind(enum.IntEnum):
    """The kind of a file."""

    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3
    FIFO = 4
    SOCKET = 5
    CHAR_DEVICE = 6
    BLOCK_DEVICE = 7
    MOUNT_POINT = 8


#: A file's status. Times are seconds since 1970 as floats; `fid` is the file's identity, for ever;
#: `version` advances with each change of the data.
Status = collections.namedtuple(
    "Status", "fid kind mode uid gid links size used version accessed modified changed created"
)
#: A name in a directory; `status` is None if the caller may not see it.
Entry = collections.namedtuple("Entry", "name kind status")
#: The end of an operation. `error` is None, or an exception; `bytes` is how many were moved, and
#: `offset` where they are in the file.
Completion = collections.namedtuple("Completion", "tag buffer bytes offset size version error")


def _status(record):
    seconds = lambda at: at.seconds + at.nanoseconds / 1e9
    return Status(
        (record.volume, record.vnode, record.unique), Kind(record.kind), record.mode, record.uid,
        record.gid, record.links, record.size, record.used, record.version,
        seconds(record.accessed), seconds(record.modified), seconds(record.changed),
        seconds(record.created),
    )


def _uses(text):
    """Uses of data as the library has them."""
    if text not in _USES:
        raise ValueError(f"uses of {text!r}; they are one of {', '.join(map(repr, _USES))}")
    return _USES[text]


def _path(path):
    """A path as the library has it. A zero would end it early."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path has no zeros")
    return encoded


class _Object:
    """An object of the library."""

    def __init__(self, handle, end):
        self._handle = handle
        # It runs once, at the latest when the interpreter ends.
        self._end = weakref.finalize(self, end, handle)

    def close(self):
        """Ends the object. Its methods fail from now on with ClosedError."""
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _made(make, *arguments, path=None):
    """The handle that a function of the library makes."""
    handle = ctypes.c_void_p()
    check(make(*arguments, ctypes.byref(handle)), path)
    return handle.value


class Cell(_Object):
    """A connection with a cell.

    `server` is one of its servers: "unix:PATH" or "tcp:HOST:PORT"; without it that which the
    environment's RIALTO_SERVER names. `root` is the volume in which paths begin [root.cell].
    """

    def __init__(self, server=None, root=None):
        server = server or os.environ.get("RIALTO_SERVER")
        if not server:
            raise ValueError("no server is given, and RIALTO_SERVER is not set")
        root = None if root is None else os.fsencode(root)
        handle = _made(lib.connect, os.fsencode(server), root, path=str(server))
        super().__init__(handle, lib.disconnect)
        #: Memory for reads of many ranges, of one thread at a time, made when it is first needed.
        self._ranges, self._ranges_lock = None, threading.Lock()

    def has_lane(self):
        """Does memory that both sides share carry the operations on the first server now?"""
        return check(lib.has_lane(self._handle)) == 1

    def open(self, path, mode="r", permissions=0o644, *, access=None, deny="", key=None):
        """Opens a file: "r" one that exists, "w" one that is made or cut to nothing, "a" or "c" one
        that is made or left as it is, "x" one that does not exist. Each may be read and written. A
        file has no position.

        With `access` ("r", "w" or "rw") the file is opened at its server, which lets no other have
        the uses that `deny` names ("", "r", "w" or "rw") until the file is closed. With a `key` of
        16 bytes all who have the file open must have the same one."""
        flags = _FLAGS.get(mode)
        if flags is None:
            raise ValueError(f"a mode of {mode!r}; it is one of {', '.join(_FLAGS)}")
        where = str(path)
        if access is None:
            if deny or key is not None:
                raise ValueError("an open that denies something, or has a key, has an access")
            return File(_made(lib.open, self._handle, _path(path), flags, permissions, path=where))
        if key is not None and len(key) != _KEY_BYTES:
            raise ValueError(f"a key of {len(key)} bytes; it has {_KEY_BYTES}")
        key = None if key is None else bytes(key)
        how = HowRecord(_uses(access), _uses(deny), flags, permissions, key)
        return File(_made(
            lib.open_how, self._handle, _path(path), ctypes.byref(how), path=where))

    def memory(self, bytes):
        """New memory that servers can access, of at least so many bytes."""
        return Memory(_made(lib.memory_alloc, self._handle, bytes))

    def stat(self, path, follow=True):
        """The status of the file with this path; with `follow` of the one that a link names."""
        record = StatusRecord()
        check(lib.stat(self._handle, _path(path), follow, ctypes.byref(record)), str(path))
        return _status(record)

    def list(self, path=""):
        """The entries of a directory, in the order of the server."""
        found = []

        def note(_, entry):
            entry = entry.contents
            name = os.fsdecode(ctypes.string_at(entry.name, entry.name_bytes))
            status = _status(entry.status) if entry.has_status else None
            found.append(Entry(name, Kind(entry.kind), status))
            return 0

        check(lib.list(self._handle, _path(path), EntryCallback(note), None), str(path))
        return found

    def mkdir(self, path, permissions=0o755):
        """Makes a directory."""
        check(lib.mkdir(self._handle, _path(path), permissions), str(path))

    def rmdir(self, path):
        """Removes an empty directory."""
        check(lib.rmdir(self._handle, _path(path)), str(path))

    def unlink(self, path):
        """Removes a name of a file."""
        check(lib.unlink(self._handle, _path(path)), str(path))

    def rename(self, old, new, replace=True):
        """Gives a file or directory another name in the same volume."""
        check(lib.rename(self._handle, _path(old), _path(new), replace), str(old))

    def read_ranges(self, ranges):
        """Reads many ranges at once: `ranges` has triples of file, offset and bytes. Returns for
        each its bytes, fewer only at the end of a file, or its exception."""
        ranges = list(ranges)
        parts = collections.deque(
            (number, at, min(OPERATION_BYTES_MAX, length - at))
            for number, (_, _, length) in enumerate(ranges)
            for at in range(0, length, OPERATION_BYTES_MAX)
        )
        found, ends, failed = [bytearray(length) for _, _, length in ranges], {}, {}
        begun = {}
        with self._ranges_lock, Group() as group:
            self._ranges = self._ranges or self.memory(_RANGES_BYTES)
            while parts or len(group):
                while parts and (buffer := _cut(self._ranges, parts[0][2], group)):
                    number, at, length = part = parts.popleft()
                    file, offset, _ = ranges[number]
                    # No two parts begin at the same place of the same range.
                    tag = number << 32 | at // OPERATION_BYTES_MAX
                    begun[tag] = part
                    try:
                        file.read_async(buffer, offset + at, group=group, tag=tag)
                    except OSError as error:
                        buffer.close()
                        failed.setdefault(number, error)
                for done in group.wait():
                    number, at, length = begun.pop(done.tag)
                    if done.error:
                        failed.setdefault(number, done.error)
                    else:
                        found[number][at:at + done.bytes] = done.buffer.data[:done.bytes]
                        if done.bytes < length:
                            ends[number] = min(at + done.bytes, ends.get(number, at + length))
                    done.buffer.close()
        return [
            failed.get(number) or bytes(data[:ends.get(number, len(data))])
            for number, data in enumerate(found)
        ]


def _cut(memory, bytes, group):
    """A buffer; None: its room is that of operations of the group."""
    try:
        return memory.buffer(bytes)
    except OSError as error:
        if error.code != "RIALTO_EMEMORY" or not len(group):
            raise
        return None


class Memory(_Object):
    """Memory that servers can access. Make few and large ones, and cut buffers from them anew:
    memory that an operation has used stays with the cell, as one of 64 that a server accepts. The
    bytes of others go over the socket."""

    def __init__(self, handle):
        super().__init__(handle, lib.memory_free)

    def buffer(self, bytes):
        """A buffer of so many bytes, with any content."""
        return Buffer(_made(lib.buffer, self._handle, bytes))


class Buffer(_Object):
    """Bytes that servers can access. From the begin of an operation until its completion they
    belong to the operation: do not look at them meanwhile."""

    def __init__(self, handle):
        # The array has the bytes; each memoryview or array of numpy of it refers to it.
        length = check(lib.buffer_bytes(handle))
        self._array = (ctypes.c_ubyte * length).from_address(lib.buffer_data(handle))
        self._handle = handle
        ends = weakref.finalize(self._array, lib.buffer_release, handle)
        # At the interpreter's end others may look at the bytes still.
        ends.atexit = False
        self._length = length

    def __len__(self):
        return self._length

    @property
    def data(self):
        """The bytes, as a memoryview that can be written."""
        if self._array is None:
            raise errors.make("RIALTO_EHANDLE", errno.EBADF, "the buffer was closed")
        return memoryview(self._array).cast("B")

    def close(self):
        """Gives the bytes back to their memory, as soon as nothing looks at them any more, and no
        operation has them."""
        self._array = None


class Group(_Object):
    """Operations complete into a group. One thread at a time waits for it."""

    def __init__(self):
        super().__init__(_made(lib.cg_create), lib.cg_destroy)
        #: The buffers that operations have, by their handles.
        self._flying = {}

    def __len__(self):
        return check(lib.cg_count(None, self._handle))

    def _begin(self, buffer, begin):
        handle = buffer._handle
        fresh = handle not in self._flying
        # Another thread may take the completion before `begin` returns.
        if fresh:
            self._flying[handle] = (buffer, buffer._array)
        try:
            check(begin(self._handle, handle))
        except BaseException:
            if fresh:
                del self._flying[handle]
            raise

    def wait(self, least=1, timeout=None):
        """Waits until `least` operations are complete, or all, for `timeout` seconds at most;
        returns all that are, the earliest first. Raises no error for those that failed, and none if
        the time is over."""
        until = None if timeout is None else time.monotonic() + timeout
        found = []
        while True:
            rest = _SLICE_MS
            if until is not None:
                rest = max(0, min(rest, int((until - time.monotonic()) * 1000 + 1)))
            enough = self._take(max(0, least - len(found)), rest, found)
            if enough or until is not None and time.monotonic() >= until:
                break
        return found

    def poll(self):
        """The operations that are complete now."""
        found = []
        self._take(0, 0, found)
        return found

    def _take(self, least, millis, found):
        records, count = (CompletionRecord * _TAKEN_MAX)(), ctypes.c_size_t()
        least = min(least, _TAKEN_MAX)
        result = lib.cg_wait(
            None, self._handle, least, millis, records, _TAKEN_MAX, ctypes.byref(count)
        )
        if result < 0 and lib.error_name(result) != b"RIALTO_ETIMEDOUT":
            raise failure(result)
        for record in records[:count.value]:
            buffer, _ = self._flying.pop(record.buffer)
            error = None
            if record.error:
                error = failure(record.error, lib.error_string(record.error))
            found.append(Completion(
                record.tag, buffer, record.bytes, record.offset, record.size, record.version, error
            ))
        return result == 0 and (least < _TAKEN_MAX or count.value == 0)

    def close(self):
        """Ends the group. Waits for its operations first: they have buffers."""
        if self._end.alive:
            while len(self):
                self.wait(_TAKEN_MAX)
        super().close()


class Lock:
    """Locked bytes of a file."""

    def __init__(self, file, owner, start, length):
        self._file, self._bytes = file, (owner, start, length)

    def unlock(self):
        """Unlocks the bytes; nothing if that was done before. LostHoldError: the lock was lost
        before."""
        file, self._file = self._file, None
        if file is not None:
            check(lib.unlock(file._handle, *self._bytes))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unlock()


class File(_Object):
    """An open file. There is no position in it: each operation names its own.

    `data` of an operation is a Buffer, which costs no copy, or anything with the buffer protocol:
    bytes, bytearray, memoryview, an array of numpy.
    """

    def __init__(self, handle):
        super().__init__(handle, lib.close)

    def pread(self, data, offset):
        """Reads from `offset` on. `data` is a number of bytes, which are returned; or the place for
        them, and how many they are is returned. They are fewer only at the end of the file."""
        if isinstance(data, int):
            found = bytearray(data)
            moved = self.pread(found, offset)
            return bytes(memoryview(found)[:moved])
        if isinstance(data, Buffer):
            return self._now(self.read_async, data, offset).bytes
        place, length = _writable(data)
        return check(lib.read(self._handle, place, length, offset))

    def pwrite(self, data, offset):
        """Writes all of `data` at `offset`; returns how many bytes."""
        if isinstance(data, Buffer):
            return self._now(self.write_async, data, offset).bytes
        place, length = _readable(data)
        return check(lib.write(self._handle, place, length, offset))

    def append(self, data):
        """Writes all of `data` at the end of the file; returns its offset there. Up to 1 MiB stays
        together."""
        if isinstance(data, Buffer):
            return self._now(self.append_async, data).offset
        place, length = _readable(data)
        offset = ctypes.c_uint64()
        check(lib.append(self._handle, place, length, ctypes.byref(offset)))
        return offset.value if length else self.stat().size

    def _now(self, begin, buffer, *arguments):
        with Group() as group:
            begin(buffer, *arguments, group=group)
            (done,) = group.wait(1)
        if done.error:
            raise done.error
        return done

    def read_async(self, buffer, offset, bytes=None, *, group, tag=0):
        """Begins to read from `offset` on into the first `bytes` bytes of the buffer [all, at most
        1 MiB]. Completes into the group."""
        length = len(buffer) if bytes is None else bytes
        group._begin(buffer, lambda group, buffer: lib.async_read(
            self._handle, group, buffer, length, offset, tag))

    def write_async(self, buffer, offset, bytes=None, *, group, tag=0):
        """Begins to write the first `bytes` bytes of the buffer at `offset`."""
        length = len(buffer) if bytes is None else bytes
        group._begin(buffer, lambda group, buffer: lib.async_write(
            self._handle, group, buffer, length, offset, tag))

    def append_async(self, buffer, bytes=None, *, group, tag=0):
        """Begins to write the first `bytes` bytes of the buffer at the end of the file."""
        length = len(buffer) if bytes is None else bytes
        group._begin(buffer, lambda group, buffer: lib.async_append(
            self._handle, group, buffer, length, tag))

    def lock(self, start=0, length=0, exclusive=True, wait=True):
        """Locks `length` bytes from `start` on [all], against the locks of others: those of
        programs, and those of fcntl in mounts. `wait` is how long it waits for these, in seconds;
        True: without end. LockedError: they were in the way still. The lock ends with the block of
        its `with`, or by its `unlock`; and with the file."""
        millis = -1 if wait is True else max(0, int(wait * 1000))
        owner = next(_OWNERS)
        check(lib.lock(self._handle, owner, start, length, exclusive, millis))
        return Lock(self, owner, start, length)

    def downgrade(self, access, deny=""):
        """Gives up uses or denials of the open."""
        check(lib.downgrade(self._handle, _uses(access), _uses(deny)))

    def close(self):
        """Ends the file's open and its locks at the server. LostHoldError: they were lost before;
        it is closed in any case."""
        if self._end.detach():
            check(lib.close(self._handle))

    def stat(self):
        """The file's status now."""
        record = StatusRecord()
        check(lib.fstat(self._handle, ctypes.byref(record)))
        return _status(record)

    def truncate(self, size):
        """Cuts the file, or makes it longer with zeros."""
        check(lib.truncate(self._handle, size))

    def commit(self):
        """Makes what was written stable: it survives the server's host."""
        check(lib.commit(self._handle))


def _writable(data):
    view = memoryview(data)
    if view.readonly:
        raise TypeError("the place for the bytes cannot be written")
    if not view.nbytes:
        return None, 0
    return (ctypes.c_ubyte * view.nbytes).from_buffer(view.cast("B")), view.nbytes


def _readable(data):
    """Memory that can only be read is copied: ctypes has no address of it. That of bytes it has."""
    view = memoryview(data)
    if not view.nbytes:
        return None, 0
    if not view.readonly:
        return _writable(view)
    content = data if isinstance(data, bytes) else view.tobytes()
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p), len(content)
