//! The kernel's side of FUSE as bytes: the layouts and numbers of ABI 7.45, and nothing else.
//!
//! The kernel and this process run on one machine, so everything is in native byte order. Every
//! struct has the kernel's size, checked by the assertions at the foot. Unused fields have a
//! leading underscore or the kernel's name. Source: `linux/fuse.h` and the kernel's changelog of
//! it, minor versions 38 to 45.
// A field is named as the kernel names it, and means what it means there.
#![allow(missing_docs)]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version of this file.
pub const MAJOR: u32 = 7;
/// The newest minor version that this file describes.
pub const MINOR: u32 = 45;
/// The oldest supported one: from here on the kernel reports when set-id bits must go. 7.33 is
/// Linux 5.11.
pub const MINOR_OLDEST: u32 = 33;
/// The kernel can drop every cached name at once without a lock from here on.
pub const MINOR_INC_EPOCH: u32 = 44;
/// The kernel forgets unused nodes on request from here on.
pub const MINOR_PRUNE: u32 = 45;
/// From here on (Linux 6.13) each change of a file has a time of its own, if the one before was
/// read. 7.42 is Linux 6.14.
pub const MINOR_FINE_TIMES: u32 = 42;

/// The node of the root directory.
pub const ROOT_ID: u64 = 1;
/// Room that the kernel requires in a read buffer beyond `max_write`.
pub const HEADROOM_BYTES: usize = 4096;

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type),* }
    )*};
}

wire! {
    /// Begins every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, padding: u16,
    }
    /// Begins every reply; with `unique` 0 a notification, whose code is in `error`.
    OutHeader { len: u32, error: i32, unique: u64 }

    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64,
        atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    LkOut { lk: FileLock }
    /// The part that every kernel sends; newer ones add [`InitInMore`].
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitInMore { flags2: u32, unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32,
        max_background: u16, congestion_threshold: u16, max_write: u32, time_gran: u32,
        max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64,
        nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    /// Precedes the name of an entry in a listing; the whole is padded to eight bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    NotifyInvalInode { ino: u64, off: i64, len: i64 }
    /// Precedes the bytes.
    NotifyStore { ino: u64, off: u64, size: u32, padding: u32 }
    /// Precedes the numbers of the nodes.
    NotifyPrune { count: u32, padding: u32, spare: u64 }
    /// Precedes the name and its closing NUL.
    NotifyInvalEntry { parent: u64, namelen: u32, flags: u32 }
}

/// The operation of a request: `InHeader::opcode`.
pub mod opcode {
    macro_rules! opcodes {
        ($($name:ident = $value:literal,)*) => {
            $(pub const $name: u32 = $value;)*

            /// The name of an operation.
            pub const fn name(opcode: u32) -> &'static str {
                match opcode {
                    $($value => stringify!($name),)*
                    _ => "unknown",
                }
            }
        };
    }
    opcodes! {
        LOOKUP = 1,
        FORGET = 2,
        GETATTR = 3,
        SETATTR = 4,
        READLINK = 5,
        SYMLINK = 6,
        MKNOD = 8,
        MKDIR = 9,
        UNLINK = 10,
        RMDIR = 11,
        RENAME = 12,
        LINK = 13,
        OPEN = 14,
        READ = 15,
        WRITE = 16,
        STATFS = 17,
        RELEASE = 18,
        FSYNC = 20,
        SETXATTR = 21,
        GETXATTR = 22,
        LISTXATTR = 23,
        REMOVEXATTR = 24,
        FLUSH = 25,
        INIT = 26,
        OPENDIR = 27,
        READDIR = 28,
        RELEASEDIR = 29,
        FSYNCDIR = 30,
        GETLK = 31,
        SETLK = 32,
        SETLKW = 33,
        ACCESS = 34,
        CREATE = 35,
        INTERRUPT = 36,
        BMAP = 37,
        DESTROY = 38,
        IOCTL = 39,
        POLL = 40,
        NOTIFY_REPLY = 41,
        BATCH_FORGET = 42,
        FALLOCATE = 43,
        READDIRPLUS = 44,
        RENAME2 = 45,
        LSEEK = 46,
        COPY_FILE_RANGE = 47,
        SYNCFS = 50,
        TMPFILE = 51,
        STATX = 52,
        COPY_FILE_RANGE_64 = 53,
    }
}

/// In a request's `unique`: the kernel sends it once more, after [`notify::RESEND`].
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// The kind of a notification: `OutHeader::error` with `unique` 0.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const STORE: i32 = 4;
    pub const RESEND: i32 = 7;
    pub const INC_EPOCH: i32 = 8;
    pub const PRUNE: i32 = 9;
}

/// The flags of `INIT`; bits from 32 on travel in `flags2`.
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits for the fields of [`SetattrIn`] that count.
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bits in several requests.
pub mod flag {
    /// `WriteIn`: the kernel writes its pages back.
    pub const WRITE_CACHE: u32 = 1 << 0;
    /// `WriteIn`: an unprivileged write.
    pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    /// `ReleaseIn`: `lock_owner`'s whole-file lock ends.
    pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    /// `LkIn`: a whole-file lock, not a byte range.
    pub const LK_FLOCK: u32 = 1 << 0;
    /// `OpenOut`: reads and writes bypass the page cache.
    pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
    /// `OpenOut`: cached pages stay valid.
    pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
    /// `OpenOut`: the kernel caches listings.
    pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
    /// `OpenOut`: the kernel reads and writes the file `backing_id` itself.
    pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;
    /// `OpenOut`: no `FLUSH` when a descriptor is closed.
    pub const FOPEN_NOFLUSH: u32 = 1 << 5;
}

/// Bits for the fields of a [`Statx`] that count: the basic ones, and the time of birth.
pub const STATX_BASIC_AND_BIRTH: u32 = 0x7ff | 0x800;

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<LkIn>() == 48);
    assert!(size_of::<InitIn>() + size_of::<InitInMore>() == 64);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<StatxIn>() == 24);
    assert!(size_of::<Statx>() == 256);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<Dirent>() == 24);
};
