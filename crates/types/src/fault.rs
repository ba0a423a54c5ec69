//! The reasons for a refusal. `mount/errno.rs` turns these into errnos, and `capi/error.rs` into
//! the same ones.

/// The answer of the file service in place of an [`crate::Answer`]. The numbers are wire values;
/// never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum Fault {
    /// No such entry.
    #[error("no such entry")]
    NotFound = 1,
    /// The entry is there already.
    #[error("the entry exists")]
    Exists = 2,
    /// Needs a directory.
    #[error("not a directory")]
    NotDirectory = 3,
    /// Must not be a directory.
    #[error("is a directory")]
    IsDirectory = 4,
    /// The directory has entries.
    #[error("directory is not empty")]
    NotEmpty = 5,
    /// Mode bits (or the access list) do not allow it.
    #[error("access denied")]
    AccessDenied = 6,
    /// Only the owner or the superuser may.
    #[error("not permitted")]
    NotPermitted = 7,
    /// The partition is full.
    #[error("partition is full")]
    NoSpace = 8,
    /// The volume's quota is used up.
    #[error("quota of the volume is used up")]
    QuotaExceeded = 9,
    /// Past the largest offset.
    #[error("file would be too large")]
    TooBig = 10,
    /// Too many names for one file.
    #[error("too many links")]
    TooManyLinks = 11,
    /// The arguments contradict the file or each other.
    #[error("invalid arguments")]
    Invalid = 12,
    /// No file has this fid (any more).
    #[error("no such file any more")]
    Stale = 13,
    /// The volume cannot be changed.
    #[error("volume is read-only")]
    ReadOnly = 14,
    /// Two volumes in one call.
    #[error("crosses volumes")]
    CrossVolume = 15,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoXattr = 16,
    /// An extended attribute, or all of a file's, would be too large.
    #[error("attribute is too large")]
    XattrTooBig = 17,
    /// Another owner holds the lock.
    #[error("locked by another")]
    Locked = 18,
    /// Waiting would never end.
    #[error("deadlock")]
    Deadlock = 19,
    /// The caller cancelled the request.
    #[error("cancelled")]
    Cancelled = 20,
    /// The stored bytes fail their checksum.
    #[error("stored data is damaged")]
    Damaged = 21,
    /// The server's disk failed; it accepts no more writes until it has recovered.
    #[error("server's medium failed")]
    Medium = 22,
    /// Not offered here.
    #[error("not supported")]
    Unsupported = 23,
    /// In use in a way that excludes this.
    #[error("busy")]
    Busy = 24,
    /// An earlier member of the chain failed.
    #[error("chain aborted")]
    ChainAborted = 25,
    /// Ask again with the caller's supplementary groups: they may decide. Never reaches an
    /// application.
    #[error("supplementary groups needed")]
    GroupsNeeded = 26,
    /// The session is gone, with its locks.
    #[error("session expired")]
    Expired = 27,
    /// No such volume here.
    #[error("no such volume")]
    NoVolume = 28,
    /// An offset where there is nothing to seek to.
    #[error("no data or hole there")]
    NothingThere = 29,
    /// A credential handle that the session never registered.
    #[error("no such credential")]
    NoCredential = 30,
    /// Text or data that does not fit where it must.
    #[error("name is too long")]
    NameTooLong = 31,
    /// A change that no delegation of this session covers. Never reaches an application.
    #[error("not delegated to this session")]
    NotDelegated = 32,
    /// An administrator took the volume offline.
    #[error("volume is offline")]
    Offline = 33,
    /// The record changed since the caller read it: read it again. Never reaches an application.
    #[error("the record changed meanwhile: read it again")]
    Conflict = 34,
    /// The cell database cannot be reached now, or is here and cannot be opened.
    #[error("the cell's database cannot be reached")]
    CellAway = 35,
    /// The cell has no such user or group.
    #[error("no such user or group")]
    NoPrincipal = 36,
    /// The proof of the caller's identity has ended: the caller must log in again.
    #[error("token has expired")]
    TokenExpired = 37,
    /// An administrator fenced the caller.
    #[error("fenced off by an administrator")]
    Fenced = 38,
    /// The token is not this cell's, is forged, or the caller does not have its key.
    #[error("token is not accepted")]
    TokenRefused = 39,
    /// Another program has the file open in a way that excludes this.
    #[error("another program has the file open, and denies this")]
    ShareConflict = 40,
    /// The file is open with a key that the caller does not have.
    #[error("the file is open with another key, or without one")]
    KeyConflict = 41,
    /// A persistent lock of some of these bytes ended abnormally, and no one has repaired the file.
    #[error("the holder of a persistent lock did not finish its work; the file needs a repair")]
    LockBroken = 42,
}

impl Fault {
    /// Every fault, for tables and tests.
    pub const ALL: [Fault; 42] = [
        Fault::NotFound,
        Fault::Exists,
        Fault::NotDirectory,
        Fault::IsDirectory,
        Fault::NotEmpty,
        Fault::AccessDenied,
        Fault::NotPermitted,
        Fault::NoSpace,
        Fault::QuotaExceeded,
        Fault::TooBig,
        Fault::TooManyLinks,
        Fault::Invalid,
        Fault::Stale,
        Fault::ReadOnly,
        Fault::CrossVolume,
        Fault::NoXattr,
        Fault::XattrTooBig,
        Fault::Locked,
        Fault::Deadlock,
        Fault::Cancelled,
        Fault::Damaged,
        Fault::Medium,
        Fault::Unsupported,
        Fault::Busy,
        Fault::ChainAborted,
        Fault::GroupsNeeded,
        Fault::Expired,
        Fault::NoVolume,
        Fault::NothingThere,
        Fault::NoCredential,
        Fault::NameTooLong,
        Fault::NotDelegated,
        Fault::Offline,
        Fault::Conflict,
        Fault::CellAway,
        Fault::NoPrincipal,
        Fault::TokenExpired,
        Fault::Fenced,
        Fault::TokenRefused,
        Fault::ShareConflict,
        Fault::KeyConflict,
        Fault::LockBroken,
    ];

    /// The fault with the given wire value.
    pub fn from_wire(value: u16) -> Option<Self> {
        Fault::ALL.into_iter().find(|fault| *fault as u16 == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_listed_once_under_its_number() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index + 1);
            assert_eq!(Fault::from_wire(fault as u16), Some(fault));
        }
        assert_eq!(Fault::from_wire(0), None);
        assert_eq!(Fault::from_wire(43), None);
    }
}
