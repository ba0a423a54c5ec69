//! A file's status as C has it. The layouts are for ever: the header and other programs have them.

use types::{Status, Timestamp};

use crate::error::{ARGUMENT, Failure};

/// A time as C has it: `rialto_time_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeRecord {
    pub seconds: i64,
    pub nanoseconds: u32,
    pub reserved: u32,
}

/// A status as C has it: `rialto_status_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusRecord {
    pub volume: u64,
    pub vnode: u64,
    pub unique: u64,
    pub kind: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub reserved: u32,
    pub size: u64,
    pub used: u64,
    pub version: u64,
    pub accessed: TimeRecord,
    pub modified: TimeRecord,
    pub changed: TimeRecord,
    pub created: TimeRecord,
}

impl TimeRecord {
    fn of(time: Timestamp) -> TimeRecord {
        TimeRecord { seconds: time.secs, nanoseconds: time.nanos, reserved: 0 }
    }
}

impl StatusRecord {
    /// The record of a status.
    pub(crate) fn of(status: &Status) -> StatusRecord {
        StatusRecord {
            volume: status.fid.volume.0,
            vnode: status.fid.vnode.0,
            unique: status.fid.unique.0,
            kind: status.kind as u32,
            mode: u32::from(status.mode),
            uid: status.uid,
            gid: status.gid,
            links: status.links,
            reserved: 0,
            size: status.size,
            used: status.used,
            version: status.data_version.0,
            accessed: TimeRecord::of(status.accessed),
            modified: TimeRecord::of(status.modified),
            changed: TimeRecord::of(status.changed),
            created: TimeRecord::of(status.created),
        }
    }
}

/// Permission, set-id and sticky bits, as C has them.
///
/// # Errors
/// `ARGUMENT`.
pub(crate) fn mode_bits(mode: u32) -> Result<u16, Failure> {
    let bits = u16::try_from(mode).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| ARGUMENT.because(format!("a mode of {mode:#o}")))
}
