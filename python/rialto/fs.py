"""The file system of fsspec for paths that begin with rialto://.

    import pandas
    pandas.read_csv("rialto://data/table.csv",
                    storage_options={"server": "unix:/srv/rialto/server.sock"})

Model: a path is one in the cell, without a leading "/". The cell is that of `server`, or of the
environment's RIALTO_SERVER. Written bytes go to the file piece by piece, under its own name.
"""

import datetime
import errno
import io
import os

from fsspec.spec import AbstractFileSystem

from .cell import Cell, Kind
from .errors import ExistsError, NotFoundError

#: As much as one operation moves.
_BUFFER_BYTES = 1 << 20

_TYPES = {Kind.FILE: "file", Kind.DIRECTORY: "directory", Kind.MOUNT_POINT: "directory"}


class _Position(io.RawIOBase):
    """An open file with a position, as Python's files have one."""

    def __init__(self, file, mode, name):
        self._file, self.name, self.mode = file, name, mode
        self._reads, self._appends = mode.startswith("r"), mode.startswith("a")
        self._at = file.stat().size if self._appends else 0

    def readable(self):
        return self._reads

    def writable(self):
        return not self._reads

    def seekable(self):
        return not self._appends

    def readinto(self, place):
        self._check()
        moved = self._file.pread(place, self._at)
        self._at += moved
        return moved

    def write(self, data):
        self._check()
        length = memoryview(data).nbytes
        if self._appends:
            self._at = self._file.append(data) + length
        else:
            self._at += self._file.pwrite(data, self._at)
        return length

    def tell(self):
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        self._check()
        if self._appends:
            raise io.UnsupportedOperation("a file that is appended to has no position")
        base = {
            os.SEEK_SET: lambda: 0,
            os.SEEK_CUR: lambda: self._at,
            os.SEEK_END: lambda: self._file.stat().size,
        }[whence]()
        if base + offset < 0:
            raise ValueError("a position before the file")
        self._at = base + offset
        return self._at

    def truncate(self, size=None):
        self._check()
        size = self._at if size is None else size
        self._file.truncate(size)
        return size

    def _check(self):
        if self.closed:
            raise ValueError("the file is closed")

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


class RialtoFileSystem(AbstractFileSystem):
    """Files of a cell. `server` and `root` are those of `rialto.Cell`."""

    protocol = "rialto"
    root_marker = ""

    def __init__(self, server=None, root=None, **options):
        super().__init__(**options)
        self.cell = Cell(server, root)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        for start in ("rialto://", "rialto:"):
            if path.startswith(start):
                path = path[len(start):]
                break
        return path.strip("/")

    def unstrip_protocol(self, name):
        return "rialto://" + self._strip_protocol(name)

    def _details(self, path, status):
        return {
            "name": path,
            "size": status.size if status.kind == Kind.FILE else 0,
            "type": _TYPES.get(status.kind, "other"),
            "mode": status.mode,
            "uid": status.uid,
            "gid": status.gid,
            "nlink": status.links,
            "mtime": status.modified,
            "created": status.created,
            "fid": status.fid,
            "version": status.version,
        }

    def info(self, path, **_):
        path = self._strip_protocol(path)
        return self._details(path, self.cell.stat(path))

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path)
        status = self.cell.stat(path)
        if status.kind == Kind.DIRECTORY:
            found = [self._entry(path, entry) for entry in self.cell.list(path)]
        else:
            found = [self._details(path, status)]
        found.sort(key=lambda each: each["name"])
        return found if detail else [each["name"] for each in found]

    def _entry(self, directory, entry):
        path = f"{directory}/{entry.name}" if directory else entry.name
        status = entry.status
        if entry.kind in (Kind.SYMLINK, Kind.MOUNT_POINT):
            # Each has the details of the file that it leads to.
            try:
                status = self.cell.stat(path)
            except OSError:
                status = None
        if status is None:
            return {"name": path, "size": 0, "type": _TYPES.get(entry.kind, "other")}
        details = self._details(path, status)
        if entry.kind == Kind.SYMLINK:
            details["islink"] = True
        return details

    def _open(self, path, mode="rb", block_size=None, **_):
        kind = mode.replace("b", "")
        file = self.cell.open(self._strip_protocol(path), kind)
        try:
            if file.stat().kind == Kind.DIRECTORY:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            raw = _Position(file, mode, path)
        except BaseException:
            file.close()
            raise
        size = block_size if isinstance(block_size, int) else _BUFFER_BYTES
        return (io.BufferedReader if kind == "r" else io.BufferedWriter)(raw, size)

    def cat_file(self, path, start=None, end=None, **_):
        with self.cell.open(self._strip_protocol(path)) as file:
            size = file.stat().size
            start, end = _bounds(start, end, size)
            return file.pread(end - start, start)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **_):
        paths = [paths] if isinstance(paths, str) else list(paths)
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends are not as many as each other")
        files, ranges, found = {}, [], [None] * len(paths)
        try:
            for at, (path, start, end) in enumerate(zip(paths, starts, ends)):
                path = self._strip_protocol(path)
                try:
                    if path not in files:
                        file = self.cell.open(path)
                        files[path] = (file, file.stat().size)
                    file, size = files[path]
                    start, end = _bounds(start, end, size)
                    ranges.append((at, (file, start, end - start)))
                except OSError as error:
                    found[at] = error
            read = self.cell.read_ranges(each for _, each in ranges)
            for (at, _), data in zip(ranges, read):
                found[at] = data
        finally:
            for file, _ in files.values():
                file.close()
        errors = [each for each in found if isinstance(each, OSError)]
        if on_error == "raise" and errors:
            raise errors[0]
        return found

    def pipe_file(self, path, value, mode="overwrite", **_):
        with self.cell.open(self._strip_protocol(path), "x" if mode == "create" else "w") as file:
            file.pwrite(value, 0)

    def mkdir(self, path, create_parents=True, **_):
        path = self._strip_protocol(path)
        if create_parents and "/" in path:
            self.makedirs(self._parent(path), exist_ok=True)
        self.cell.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        parts = path.split("/") if path else []
        for count in range(1, len(parts) + 1):
            try:
                self.cell.mkdir("/".join(parts[:count]))
            except ExistsError:
                if count == len(parts) and not exist_ok:
                    raise

    def rmdir(self, path):
        self.cell.rmdir(self._strip_protocol(path))

    def _rm(self, path):
        path = self._strip_protocol(path)
        if self.cell.stat(path, follow=False).kind == Kind.DIRECTORY:
            self.cell.rmdir(path)
        else:
            self.cell.unlink(path)

    def mv(self, path1, path2, **_):
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        self.cell.rename(old, new)

    def cp_file(self, path1, path2, **_):
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        with self.cell.open(old) as source:
            status = source.stat()
            if status.kind == Kind.DIRECTORY:
                return self.makedirs(new, exist_ok=True)
            with self.cell.open(new, "w") as target:
                at, place = 0, bytearray(8 * _BUFFER_BYTES)
                while moved := source.pread(place, at):
                    at += target.pwrite(memoryview(place)[:moved], at)

    def touch(self, path, truncate=True, **_):
        self.cell.open(self._strip_protocol(path), "w" if truncate else "a").close()

    def exists(self, path, **_):
        try:
            self.cell.stat(self._strip_protocol(path))
            return True
        except (NotFoundError, NotADirectoryError):
            return False

    def created(self, path):
        return _time(self.cell.stat(self._strip_protocol(path)).created)

    def modified(self, path):
        return _time(self.cell.stat(self._strip_protocol(path)).modified)

    def ukey(self, path):
        status = self.cell.stat(self._strip_protocol(path))
        return f"{status.fid} {status.version}"

    def checksum(self, path):
        return int.from_bytes(self.ukey(path).encode(), "little")


def _time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _bounds(start, end, size):
    """Begin and end of a part; negative numbers count from the end of the file."""
    start = 0 if start is None else start if start >= 0 else max(0, size + start)
    end = size if end is None else end if end >= 0 else size + end
    end = max(0, min(end, size))
    return min(start, end), end
