"""Files of a Rialto cell without a mount.

    import rialto

    with rialto.Cell("unix:/srv/rialto/server.sock") as cell:
        with cell.open("data/matrix", "w") as file:
            file.pwrite(b"some bytes", 0)
        with cell.open("data/matrix") as file:
            print(file.pread(10, 0))

`rialto.fs` has the file system of fsspec, for paths that begin with rialto://.
"""

from .cell import Buffer, Cell, Completion, Entry, File, Group, Kind, Lock, Memory, Status
from .errors import (
    ClosedError,
    ExistsError,
    LockedError,
    LostError,
    LostHoldError,
    NotDirectoryError,
    NotFoundError,
    ReachError,
    RefusedError,
    RialtoError,
    TimedOutError,
    DirectoryError,
)

__all__ = [
    "Buffer", "Cell", "ClosedError", "Completion", "DirectoryError", "Entry", "ExistsError",
    "File", "Group", "Kind", "Lock", "LockedError", "LostError", "LostHoldError", "Memory",
    "NotDirectoryError", "NotFoundError", "ReachError", "RefusedError", "RialtoError", "Status",
    "TimedOutError",
]
