//! Statuses in the kernel's layout.

use std::time::Duration;

use types::{Kind, NewKind, Status, Timestamp};

use crate::abi;
use crate::nodes::{self, HIDDEN_DIR_NODE};

/// "Until invalidated", in seconds: the kernel cuts it to its own maximum.
pub const FOREVER_SECS: u64 = i32::MAX as u64;
/// The preferred size of reads and writes.
const BLOCK_BYTES: u32 = 128 << 10;
/// The preferred size of listings: as much as one message of the server's has.
const LISTED_BYTES: u32 = 256 << 10;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

const FILE_TYPE: u32 = 0o170_000;

/// How long the kernel may cache an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    secs: u64,
    nanos: u32,
}

impl Validity {
    /// Not at all.
    pub const NONE: Validity = Validity { secs: 0, nanos: 0 };
    /// Until invalidated.
    pub const FOREVER: Validity = Validity { secs: FOREVER_SECS, nanos: 0 };

    /// This long; `None`: until invalidated.
    pub const fn of(time: Option<Duration>) -> Validity {
        match time {
            Some(time) => Validity { secs: time.as_secs(), nanos: time.subsec_nanos() },
            None => Validity::FOREVER,
        }
    }

    /// This validity for a status of that file: each walk through a mount point must send a request
    /// (`submounts.rs`).
    fn of_status(self, status: &Status) -> Validity {
        self.only_if(status.kind != Kind::MountPoint)
    }

    /// This validity if `may`, otherwise none.
    pub const fn only_if(self, may: bool) -> Validity {
        if may { self } else { Validity::NONE }
    }
}

const fn type_bits(kind: Kind) -> u32 {
    match kind {
        Kind::File => 0o100_000,
        // A mount point that is not followed is shown as the directory that it leads to.
        Kind::Directory | Kind::MountPoint => 0o040_000,
        Kind::Symlink => 0o120_000,
        Kind::Fifo => 0o010_000,
        Kind::Socket => 0o140_000,
        Kind::CharDevice => 0o020_000,
        Kind::BlockDevice => 0o060_000,
    }
}

/// A kind as listings show it (`DT_REG` and so on).
pub const fn dirent_kind(kind: Kind) -> u32 {
    type_bits(kind) >> 12
}

/// The kind that `mknod` is to make; `None` if there is no such kind.
pub fn new_kind(mode: u32, rdev: u32) -> Option<NewKind> {
    let device = device_of_kernel(rdev);
    Some(match mode & FILE_TYPE {
        0 | 0o100_000 => NewKind::File,
        0o010_000 => NewKind::Fifo,
        0o140_000 => NewKind::Socket,
        0o020_000 => NewKind::CharDevice(device),
        0o060_000 => NewKind::BlockDevice(device),
        _ => return None,
    })
}

/// The kernel packs a device number as 12 bits of major between 8 and 12 bits of minor.
const fn device_of_kernel(rdev: u32) -> u64 {
    let major = (rdev & 0x000f_ff00) >> 8;
    let minor = rdev & 0xff | (rdev >> 12) & 0x000f_ff00;
    (major as u64) << 32 | minor as u64
}

const fn device_for_kernel(device: u64) -> u32 {
    let (major, minor) = ((device >> 32) as u32, device as u32);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// The permission bits of a kernel's mode.
pub const fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// A status as `GETATTR` and the like return it. `number`: the kernel's for the file, here and
/// below.
fn attr(number: u64, status: &Status) -> abi::Attr {
    abi::Attr {
        ino: nodes::ino(number),
        size: status.size,
        blocks: status.used.div_ceil(SECTOR_BYTES),
        atime: status.accessed.secs as u64,
        mtime: status.modified.secs as u64,
        ctime: status.changed.secs as u64,
        atimensec: status.accessed.nanos,
        mtimensec: status.modified.nanos,
        ctimensec: status.changed.nanos,
        mode: type_bits(status.kind) | u32::from(status.mode),
        // A mount point leads to a directory, whose own status is requested there.
        nlink: if status.kind == Kind::MountPoint { 2 } else { status.links },
        uid: status.uid,
        gid: status.gid,
        rdev: device_for_kernel(status.device),
        blksize: if status.kind == Kind::Directory { LISTED_BYTES } else { BLOCK_BYTES },
        flags: 0,
    }
}

/// A found or made name. The kernel may cache each part for its own time.
pub fn entry(
    number: u64,
    status: &Status,
    of_name: Validity,
    of_status: Validity,
) -> abi::EntryOut {
    let of_status = of_status.of_status(status);
    abi::EntryOut {
        nodeid: number,
        generation: nodes::generation(number, status.fid),
        entry_valid: of_name.secs,
        attr_valid: of_status.secs,
        entry_valid_nsec: of_name.nanos,
        attr_valid_nsec: of_status.nanos,
        attr: attr(number, status),
    }
}

/// The directory of second names, which never changes.
pub fn hidden_dir() -> abi::EntryOut {
    let attr = abi::Attr {
        ino: HIDDEN_DIR_NODE,
        mode: type_bits(Kind::Directory) | 0o700,
        nlink: 2,
        blksize: BLOCK_BYTES,
        ..Default::default()
    };
    abi::EntryOut {
        nodeid: HIDDEN_DIR_NODE,
        entry_valid: FOREVER_SECS,
        attr_valid: FOREVER_SECS,
        attr,
        ..Default::default()
    }
}

/// Its status.
pub fn hidden_dir_status() -> abi::AttrOut {
    abi::AttrOut { attr_valid: FOREVER_SECS, attr: hidden_dir().attr, ..Default::default() }
}

/// An absent name, to be cached.
pub fn no_entry(valid: Validity) -> abi::EntryOut {
    abi::EntryOut { entry_valid: valid.secs, entry_valid_nsec: valid.nanos, ..Default::default() }
}

/// A status alone.
pub fn attr_out(number: u64, status: &Status, valid: Validity) -> abi::AttrOut {
    let valid = valid.of_status(status);
    abi::AttrOut {
        attr_valid: valid.secs,
        attr_valid_nsec: valid.nanos,
        dummy: 0,
        attr: attr(number, status),
    }
}

const fn statx_time(time: Timestamp) -> abi::StatxTime {
    abi::StatxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 }
}

/// A status with its time of birth.
pub fn statx_out(number: u64, status: &Status, valid: Validity) -> abi::StatxOut {
    let valid = valid.of_status(status);
    let basic = attr(number, status);
    abi::StatxOut {
        attr_valid: valid.secs,
        attr_valid_nsec: valid.nanos,
        stat: abi::Statx {
            mask: abi::STATX_BASIC_AND_BIRTH,
            blksize: basic.blksize,
            nlink: basic.nlink,
            uid: basic.uid,
            gid: basic.gid,
            mode: basic.mode as u16,
            ino: basic.ino,
            size: basic.size,
            blocks: basic.blocks,
            atime: statx_time(status.accessed),
            btime: statx_time(status.created),
            ctime: statx_time(status.changed),
            mtime: statx_time(status.modified),
            rdev_major: (status.device >> 32) as u32,
            rdev_minor: status.device as u32,
            ..Default::default()
        },
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_kernels_packing() {
        for (major, minor) in [(0u32, 0u32), (1, 3), (8, 257), (259, 1), (4095, 0x000f_ffff)] {
            let device = u64::from(major) << 32 | u64::from(minor);
            assert_eq!(device_of_kernel(device_for_kernel(device)), device);
            assert_eq!(device_for_kernel(device), rustix::fs::makedev(major, minor) as u32);
        }
    }

    #[test]
    fn mknod_makes_what_the_mode_says() {
        assert_eq!(new_kind(0o100_644, 0), Some(NewKind::File));
        assert_eq!(new_kind(0o010_644, 0), Some(NewKind::Fifo));
        assert_eq!(new_kind(0o020_644, 0x0103), Some(NewKind::CharDevice(1 << 32 | 3)));
        assert_eq!(new_kind(0o040_755, 0), None);
    }
}
