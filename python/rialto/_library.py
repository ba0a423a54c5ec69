"""librialto.so: where it is, and its functions and structs, as crates/capi/include/rialto.h has
them.
"""

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p

from . import errors

ABI = 1
OPERATION_BYTES_MAX = 1 << 20
CREATE, EXCLUSIVE, TRUNCATE = 1, 2, 4


class TimeRecord(ctypes.Structure):
    _fields_ = [("seconds", c_int64), ("nanoseconds", c_uint32), ("reserved", c_uint32)]


class StatusRecord(ctypes.Structure):
    _fields_ = [
        ("volume", c_uint64), ("vnode", c_uint64), ("unique", c_uint64),
        ("kind", c_uint32), ("mode", c_uint32), ("uid", c_uint32), ("gid", c_uint32),
        ("links", c_uint32), ("reserved", c_uint32),
        ("size", c_uint64), ("used", c_uint64), ("version", c_uint64),
        ("accessed", TimeRecord), ("modified", TimeRecord),
        ("changed", TimeRecord), ("created", TimeRecord),
    ]


class EntryRecord(ctypes.Structure):
    _fields_ = [
        ("name", c_void_p), ("name_bytes", c_size_t), ("kind", c_uint32),
        ("has_status", c_uint32), ("status", StatusRecord),
    ]


class HowRecord(ctypes.Structure):
    _fields_ = [
        ("access", c_uint32), ("deny", c_uint32), ("flags", c_uint32), ("mode", c_uint32),
        ("key", c_char_p), ("reserved", c_uint64 * 4),
    ]


class CompletionRecord(ctypes.Structure):
    _fields_ = [
        ("tag", c_uint64), ("buffer", c_void_p), ("error", c_int32), ("reserved", c_uint32),
        ("bytes", c_uint64), ("offset", c_uint64), ("size", c_uint64), ("version", c_uint64),
    ]


EntryCallback = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(EntryRecord))

# Names without "rialto_": result, arguments. Handles and data are c_void_p.
_FUNCTIONS = {
    "abi": (c_int, []),
    "error_text": (c_char_p, []),
    "error_string": (c_char_p, [c_int]),
    "error_name": (c_char_p, [c_int]),
    "errno": (c_int, [c_int]),
    "connect": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "disconnect": (c_int, [c_void_p]),
    "has_lane": (c_int, [c_void_p]),
    "memory_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "memory_free": (c_int, [c_void_p]),
    "buffer": (c_int, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "buffer_data": (c_void_p, [c_void_p]),
    "buffer_bytes": (c_int64, [c_void_p]),
    "buffer_release": (c_int, [c_void_p]),
    "open": (c_int, [c_void_p, c_char_p, c_uint32, c_uint32, POINTER(c_void_p)]),
    "open_how": (c_int, [c_void_p, c_char_p, POINTER(HowRecord), POINTER(c_void_p)]),
    "downgrade": (c_int, [c_void_p, c_uint32, c_uint32]),
    "close": (c_int, [c_void_p]),
    "lock": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, c_int, c_int64]),
    "unlock": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64]),
    "test_lock": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, c_int]),
    "fstat": (c_int, [c_void_p, POINTER(StatusRecord)]),
    "truncate": (c_int, [c_void_p, c_uint64]),
    "commit": (c_int, [c_void_p]),
    "async_read": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64, c_uint64]),
    "async_write": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64, c_uint64]),
    "async_append": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_uint64]),
    "read": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "write": (c_int64, [c_void_p, c_void_p, c_size_t, c_uint64]),
    "append": (c_int64, [c_void_p, c_void_p, c_size_t, POINTER(c_uint64)]),
    "cg_create": (c_int, [POINTER(c_void_p)]),
    "cg_destroy": (c_int, [c_void_p]),
    "cg_wait": (c_int, [c_void_p, c_void_p, c_size_t, c_int64, POINTER(CompletionRecord),
                        c_size_t, POINTER(c_size_t)]),
    "cg_poll": (c_int, [c_void_p, c_void_p, POINTER(CompletionRecord), c_size_t,
                        POINTER(c_size_t)]),
    "cg_count": (c_int64, [c_void_p, c_void_p]),
    "stat": (c_int, [c_void_p, c_char_p, c_int, POINTER(StatusRecord)]),
    "list": (c_int, [c_void_p, c_char_p, EntryCallback, c_void_p]),
    "mkdir": (c_int, [c_void_p, c_char_p, c_uint32]),
    "unlink": (c_int, [c_void_p, c_char_p]),
    "rmdir": (c_int, [c_void_p, c_char_p]),
    "rename": (c_int, [c_void_p, c_char_p, c_char_p, c_int]),
}


def _find():
    """The path of the library: that of RIALTO_LIBRARY, of the wheel, or the system's."""
    named = os.environ.get("RIALTO_LIBRARY")
    if named:
        return named
    beside = sorted(pathlib.Path(__file__).with_name("_native").glob("*.so"))
    return str(beside[0]) if beside else "librialto.so"


class _Library:
    """The functions, each without "rialto_" in its name. Calls release the interpreter's lock."""

    def __init__(self):
        path = _find()
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise ImportError(
                f"{path} cannot be loaded ({error}); set RIALTO_LIBRARY to the path of librialto.so"
            ) from error
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, "rialto_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        if self.abi() != ABI:
            raise ImportError(f"{path} has interface {self.abi()}, and this package needs {ABI}")


lib = _Library()


def failure(number, text=None, path=None):
    """The exception of a number of an error; its text is that of the thread's latest failure, or
    this one."""
    said = lib.error_text() if text is None else text
    code = lib.error_name(number).decode()
    return errors.make(code, lib.errno(number), said.decode(errors="replace"), path)


def check(result, path=None):
    """The result of a function, or its exception."""
    if result < 0:
        raise failure(result, path=path)
    return result
