//! A file's status: 128 bytes at fixed offsets. Listings hold thousands of them, so it is one
//! struct that is read in one step.

use types::{DataVersion, Fid, Kind, Status, StatusVersion, Timestamp};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Layout, Plain};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// Bytes of a status on the wire.
pub const STATUS_BYTES: usize = 128;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    volume: U64,
    vnode: U64,
    unique: U64,
    size: U64,
    used: U64,
    device: U64,
    data_version: U64,
    status_version: U64,
    accessed_secs: I64,
    modified_secs: I64,
    changed_secs: I64,
    created_secs: I64,
    accessed_nanos: U32,
    modified_nanos: U32,
    changed_nanos: U32,
    created_nanos: U32,
    uid: U32,
    gid: U32,
    links: U32,
    mode: U16,
    kind: u8,
    /// Bit 0: access lists decide access. Bit 1: the file has its own access list. Bit 2: reads are
    /// recorded.
    flags: u8,
}

const _: () = assert!(size_of::<Raw>() == STATUS_BYTES);

/// The bits of `Status::mode`.
const MODE_MAX: u16 = 0o7777;

const BY_LIST: u8 = 1;
/// Set only with `BY_LIST`.
const OWN_LIST: u8 = 2;
const READ_TIMES: u8 = 4;

impl Layout<Status> for Plain {
    fn put(&self, to: &mut Writer, status: &Status) {
        for time in [status.accessed, status.modified, status.changed, status.created] {
            to.require(time.nanos <= 999_999_999, "nanoseconds", time.nanos.into());
        }
        to.require(status.mode <= MODE_MAX, "mode", status.mode.into());
        let raw = Raw {
            volume: status.fid.volume.0.into(),
            vnode: status.fid.vnode.0.into(),
            unique: status.fid.unique.0.into(),
            size: status.size.into(),
            used: status.used.into(),
            device: status.device.into(),
            data_version: status.data_version.0.into(),
            status_version: status.status_version.0.into(),
            accessed_secs: status.accessed.secs.into(),
            modified_secs: status.modified.secs.into(),
            changed_secs: status.changed.secs.into(),
            created_secs: status.created.secs.into(),
            accessed_nanos: status.accessed.nanos.into(),
            modified_nanos: status.modified.nanos.into(),
            changed_nanos: status.changed.nanos.into(),
            created_nanos: status.created.nanos.into(),
            uid: status.uid.into(),
            gid: status.gid.into(),
            links: status.links.into(),
            mode: status.mode.into(),
            kind: status.kind as u8,
            flags: u8::from(status.by_list) * BY_LIST
                + u8::from(status.own_list) * OWN_LIST
                + u8::from(status.read_times) * READ_TIMES,
        };
        to.require(status.by_list || !status.own_list, "own access list", raw.flags.into());
        to.raw(raw.as_bytes());
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Status, WireError> {
        let raw: Raw = zerocopy::transmute!(from.array::<STATUS_BYTES>()?);
        let bad = |what, value| WireError::BadValue { what, value };
        let time = |secs: I64, nanos: U32| match nanos.get() {
            nanos @ 0..=999_999_999 => Ok(Timestamp { secs: secs.get(), nanos }),
            nanos => Err(bad("nanoseconds", nanos.into())),
        };
        let flag = |bit: u8| raw.flags & bit != 0;
        let known = raw.flags <= (BY_LIST | OWN_LIST | READ_TIMES);
        if !known || (flag(OWN_LIST) && !flag(BY_LIST)) {
            return Err(bad("flags of a status", raw.flags.into()));
        }
        if raw.mode.get() > MODE_MAX {
            return Err(bad("mode", raw.mode.get().into()));
        }
        Ok(Status {
            fid: Fid::new(raw.volume.get(), raw.vnode.get(), raw.unique.get()),
            kind: Kind::from_wire(raw.kind).ok_or(bad("kind", raw.kind.into()))?,
            mode: raw.mode.get(),
            by_list: flag(BY_LIST),
            own_list: flag(OWN_LIST),
            read_times: flag(READ_TIMES),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            links: raw.links.get(),
            size: raw.size.get(),
            used: raw.used.get(),
            device: raw.device.get(),
            accessed: time(raw.accessed_secs, raw.accessed_nanos)?,
            modified: time(raw.modified_secs, raw.modified_nanos)?,
            changed: time(raw.changed_secs, raw.changed_nanos)?,
            created: time(raw.created_secs, raw.created_nanos)?,
            data_version: DataVersion(raw.data_version.get()),
            status_version: StatusVersion(raw.status_version.get()),
        })
    }
}
