//! Refusals as AFS tells them: the code with which a call ends.

use types::Fault;

use crate::stream::StreamBroken;

/// The code with which a call ends.
///
/// Source: OpenAFS `src/util/errors.h`; Linux's errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("AFS code {0}")]
pub struct Refusal(pub i32);

impl Refusal {
    /// EPERM.
    pub const NOT_PERMITTED: Refusal = Refusal(1);
    /// ENOENT.
    pub const NOT_FOUND: Refusal = Refusal(2);
    /// EIO.
    pub const IO: Refusal = Refusal(5);
    /// EAGAIN.
    pub const LOCKED: Refusal = Refusal(11);
    /// EACCES.
    pub const ACCESS: Refusal = Refusal(13);
    /// EEXIST.
    pub const EXISTS: Refusal = Refusal(17);
    /// EXDEV.
    pub const CROSS_DEVICE: Refusal = Refusal(18);
    /// ENOTDIR.
    pub const NOT_DIRECTORY: Refusal = Refusal(20);
    /// EISDIR.
    pub const IS_DIRECTORY: Refusal = Refusal(21);
    /// EINVAL.
    pub const INVALID: Refusal = Refusal(22);
    /// EFBIG.
    pub const TOO_BIG: Refusal = Refusal(27);
    /// EROFS.
    pub const READ_ONLY: Refusal = Refusal(30);
    /// EMLINK.
    pub const TOO_MANY_LINKS: Refusal = Refusal(31);
    /// ENAMETOOLONG.
    pub const NAME_TOO_LONG: Refusal = Refusal(36);
    /// EOPNOTSUPP.
    pub const NOT_SUPPORTED: Refusal = Refusal(95);
    /// EOPNOTSUPP and ECONNREFUSED, as stock servers number them: 111 is VMOVED.
    pub const FS_NOT_SUPPORTED: Refusal = Refusal(122);
    /// See [`Refusal::FS_NOT_SUPPORTED`].
    pub const FS_REFUSED: Refusal = Refusal(130);
    /// ENODEV.
    pub const NO_DEVICE: Refusal = Refusal(19);
    /// VNOVNODE.
    pub const NO_VNODE: Refusal = Refusal(102);
    /// VNOVOL.
    pub const NO_VOLUME: Refusal = Refusal(103);
    /// VNOSERVICE.
    pub const NO_SERVICE: Refusal = Refusal(105);
    /// VOFFLINE.
    pub const OFFLINE: Refusal = Refusal(106);
    /// VDISKFULL.
    pub const DISK_FULL: Refusal = Refusal(108);
    /// VOVERQUOTA.
    pub const OVER_QUOTA: Refusal = Refusal(109);
    /// VBUSY: the client asks again.
    pub const BUSY: Refusal = Refusal(110);
    /// VIO.
    pub const MEDIUM: Refusal = Refusal(112);
    /// RXGEN_OPCODE.
    pub const UNKNOWN: Refusal = Refusal(-455);
    /// RX_CALL_DEAD.
    pub const DEAD: Refusal = Refusal(-1);
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        match fault {
            Fault::NotFound | Fault::NothingThere | Fault::NoXattr => Refusal::NOT_FOUND,
            // A directory that is not empty is one that exists, as AFS's servers say.
            Fault::Exists | Fault::NotEmpty => Refusal::EXISTS,
            Fault::NotDirectory => Refusal::NOT_DIRECTORY,
            Fault::IsDirectory => Refusal::IS_DIRECTORY,
            // A conflict of opens is no VBUSY: clients would ask again without end.
            Fault::AccessDenied | Fault::Fenced | Fault::ShareConflict | Fault::KeyConflict => {
                Refusal::ACCESS
            }
            Fault::NotPermitted
            | Fault::NoPrincipal
            | Fault::NoCredential
            | Fault::TokenExpired
            | Fault::TokenRefused => Refusal::NOT_PERMITTED,
            Fault::NoSpace => Refusal::DISK_FULL,
            Fault::QuotaExceeded => Refusal::OVER_QUOTA,
            Fault::TooBig | Fault::XattrTooBig => Refusal::TOO_BIG,
            Fault::TooManyLinks => Refusal::TOO_MANY_LINKS,
            Fault::Invalid => Refusal::INVALID,
            Fault::Stale => Refusal::NO_VNODE,
            Fault::ReadOnly => Refusal::READ_ONLY,
            Fault::CrossVolume => Refusal::CROSS_DEVICE,
            Fault::Locked | Fault::Deadlock => Refusal::LOCKED,
            // No EWOULDBLOCK, upon which a client would ask again without end.
            Fault::LockBroken => Refusal::MEDIUM,
            Fault::NameTooLong => Refusal::NAME_TOO_LONG,
            Fault::NoVolume => Refusal::NO_VOLUME,
            Fault::Offline => Refusal::OFFLINE,
            Fault::Damaged | Fault::Medium => Refusal::MEDIUM,
            Fault::Unsupported => Refusal::NOT_SUPPORTED,
            // The client asks again.
            Fault::Busy
            | Fault::Cancelled
            | Fault::ChainAborted
            | Fault::GroupsNeeded
            | Fault::Expired
            | Fault::NotDelegated
            | Fault::Conflict
            | Fault::CellAway => Refusal::BUSY,
        }
    }
}

impl From<StreamBroken> for Refusal {
    fn from(_: StreamBroken) -> Refusal {
        Refusal::DEAD
    }
}
