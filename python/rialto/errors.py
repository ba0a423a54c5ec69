"""Errors of the library as exceptions.

Model: each is an OSError with the errno that a mount would give, and with the name of the library's
number (`code`, such as "RIALTO_ENOTFOUND"). Where Python has a class for the errno, such as
FileNotFoundError, the exception is of that class, too.
"""

import errno


class RialtoError(OSError):
    """An operation failed."""

    #: The name of the error's number in rialto.h.
    code = ""


class NotFoundError(RialtoError, FileNotFoundError):
    """No file has this path."""


class ExistsError(RialtoError, FileExistsError):
    """The name is taken."""


class NotDirectoryError(RialtoError, NotADirectoryError):
    """The path leads through a file that is no directory."""


class DirectoryError(RialtoError, IsADirectoryError):
    """The file is a directory."""


class RefusedError(RialtoError, PermissionError):
    """The caller may not do this."""


class TimedOutError(RialtoError, TimeoutError):
    """Too few operations ended in time."""


class ReachError(RialtoError, ConnectionError):
    """No server answers, or it takes no such client."""


class LostError(RialtoError, ConnectionError):
    """The session ended before the answer; whether a change was applied is unknown."""


class LostHoldError(LostError):
    """The open or a lock of the file was lost, and others may have used the file since; close
    it."""


class LockedError(RialtoError, BlockingIOError):
    """Another owner has the bytes locked."""


class ClosedError(RialtoError):
    """The file, buffer, group or cell was closed."""


_BY_CODE = {
    "RIALTO_ELOST": LostError,
    "RIALTO_ELOSTOPEN": LostHoldError,
    "RIALTO_ELOSTLOCK": LostHoldError,
    "RIALTO_ELOCKED": LockedError,
    "RIALTO_EHANDLE": ClosedError,
}
_BY_ERRNO = {
    errno.ENOENT: NotFoundError,
    errno.EEXIST: ExistsError,
    errno.ENOTDIR: NotDirectoryError,
    errno.EISDIR: DirectoryError,
    errno.EACCES: RefusedError,
    errno.EPERM: RefusedError,
    errno.ETIMEDOUT: TimedOutError,
    errno.EHOSTUNREACH: ReachError,
}


def make(code, number, text, path=None):
    """The exception of an error with this name in rialto.h, this errno and this text."""
    kind = _BY_CODE.get(code) or _BY_ERRNO.get(number, RialtoError)
    error = kind(number, text) if path is None else kind(number, text, path)
    error.code = code
    return error
