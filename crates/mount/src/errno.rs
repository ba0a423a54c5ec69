//! The place that turns refusals into errnos. The C interface (`capi/error.rs`) has the same ones.

use rustix::io::Errno;
use types::{Fault, NameError};
use venus::Error;

/// The errno of a refusal by the service.
pub fn of_fault(fault: Fault) -> Errno {
    // No `_` arm: a new fault must choose its errno here.
    match fault {
        Fault::NotFound => Errno::NOENT,
        Fault::Exists => Errno::EXIST,
        Fault::NotDirectory => Errno::NOTDIR,
        Fault::IsDirectory => Errno::ISDIR,
        Fault::NotEmpty => Errno::NOTEMPTY,
        Fault::AccessDenied => Errno::ACCESS,
        Fault::NotPermitted => Errno::PERM,
        Fault::NoSpace => Errno::NOSPC,
        Fault::QuotaExceeded => Errno::DQUOT,
        Fault::TooBig => Errno::FBIG,
        Fault::TooManyLinks => Errno::MLINK,
        Fault::Invalid => Errno::INVAL,
        Fault::Stale => Errno::STALE,
        Fault::ReadOnly => Errno::ROFS,
        Fault::CrossVolume => Errno::XDEV,
        Fault::NoXattr => Errno::NODATA,
        Fault::XattrTooBig => Errno::TOOBIG,
        Fault::Locked => Errno::AGAIN,
        Fault::Deadlock => Errno::DEADLK,
        Fault::Cancelled => Errno::INTR,
        Fault::Damaged => Errno::BADMSG,
        Fault::Medium => Errno::IO,
        Fault::Unsupported => Errno::OPNOTSUPP,
        Fault::Busy => Errno::BUSY,
        // The client handles these itself: an application sees them only if that has failed.
        Fault::ChainAborted | Fault::GroupsNeeded | Fault::NoCredential | Fault::NotDelegated => {
            Errno::IO
        }
        Fault::Expired => Errno::IO,
        Fault::NoVolume => Errno::NODEV,
        Fault::Offline => Errno::NOMEDIUM,
        Fault::Conflict => Errno::AGAIN,
        Fault::CellAway => Errno::HOSTUNREACH,
        Fault::NoPrincipal => Errno::INVAL,
        Fault::TokenExpired | Fault::TokenRefused | Fault::Fenced => Errno::ACCESS,
        // As NFS's client on Linux says of an open that a share reservation denies. EBUSY or EAGAIN
        // would have programs try again, for as long as another program likes.
        Fault::ShareConflict | Fault::KeyConflict => Errno::ACCESS,
        // As a robust mutex says of a holder that died.
        Fault::LockBroken => Errno::OWNERDEAD,
        Fault::NothingThere => Errno::NXIO,
        Fault::NameTooLong => Errno::NAMETOOLONG,
    }
}

/// The errno of a failed operation of venus.
pub fn of(error: &Error) -> Errno {
    match error {
        Error::Fault(fault) => of_fault(*fault),
        Error::Interrupted => Errno::INTR,
        Error::TimedOut => Errno::TIMEDOUT,
        // The outcome is unknown, and the application must not take it for done or for refused.
        Error::Lost | Error::Protocol | Error::LockLost => {
            tracing::warn!(%error, "a request fails with EIO");
            Errno::IO
        }
        Error::Closed(_) => Errno::NOTCONN,
        Error::NoCache(_) => Errno::IO,
        Error::BadHandle => Errno::BADF,
    }
}

/// The errno of an invalid name.
pub fn of_name(error: NameError) -> Errno {
    match error {
        NameError::TooLong => Errno::NAMETOOLONG,
        NameError::Empty => Errno::NOENT,
        NameError::BadByte | NameError::Dots => Errno::INVAL,
    }
}

/// The errno of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRefusal(pub Errno);

impl From<Errno> for RequestRefusal {
    fn from(errno: Errno) -> Self {
        RequestRefusal(errno)
    }
}

impl From<Error> for RequestRefusal {
    fn from(error: Error) -> Self {
        RequestRefusal(of(&error))
    }
}

impl From<NameError> for RequestRefusal {
    fn from(error: NameError) -> Self {
        RequestRefusal(of_name(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_errno() {
        let table = [
            (Fault::NotFound, Errno::NOENT),
            (Fault::Exists, Errno::EXIST),
            (Fault::NotDirectory, Errno::NOTDIR),
            (Fault::IsDirectory, Errno::ISDIR),
            (Fault::NotEmpty, Errno::NOTEMPTY),
            (Fault::AccessDenied, Errno::ACCESS),
            (Fault::NotPermitted, Errno::PERM),
            (Fault::NoSpace, Errno::NOSPC),
            (Fault::QuotaExceeded, Errno::DQUOT),
            (Fault::TooBig, Errno::FBIG),
            (Fault::TooManyLinks, Errno::MLINK),
            (Fault::Invalid, Errno::INVAL),
            (Fault::Stale, Errno::STALE),
            (Fault::ReadOnly, Errno::ROFS),
            (Fault::CrossVolume, Errno::XDEV),
            (Fault::NoXattr, Errno::NODATA),
            (Fault::XattrTooBig, Errno::TOOBIG),
            (Fault::Locked, Errno::AGAIN),
            (Fault::Deadlock, Errno::DEADLK),
            (Fault::Cancelled, Errno::INTR),
            (Fault::Damaged, Errno::BADMSG),
            (Fault::Medium, Errno::IO),
            (Fault::Unsupported, Errno::OPNOTSUPP),
            (Fault::Busy, Errno::BUSY),
            (Fault::ChainAborted, Errno::IO),
            (Fault::GroupsNeeded, Errno::IO),
            (Fault::Expired, Errno::IO),
            (Fault::NoVolume, Errno::NODEV),
            (Fault::NothingThere, Errno::NXIO),
            (Fault::NoCredential, Errno::IO),
            (Fault::NameTooLong, Errno::NAMETOOLONG),
            (Fault::NotDelegated, Errno::IO),
            (Fault::Offline, Errno::NOMEDIUM),
            (Fault::Conflict, Errno::AGAIN),
            (Fault::CellAway, Errno::HOSTUNREACH),
            (Fault::NoPrincipal, Errno::INVAL),
            (Fault::TokenExpired, Errno::ACCESS),
            (Fault::Fenced, Errno::ACCESS),
            (Fault::TokenRefused, Errno::ACCESS),
            (Fault::ShareConflict, Errno::ACCESS),
            (Fault::KeyConflict, Errno::ACCESS),
            (Fault::LockBroken, Errno::OWNERDEAD),
        ];
        assert_eq!(table.map(|(fault, _)| fault), Fault::ALL);
        for (fault, errno) in table {
            assert_eq!(of_fault(fault), errno, "{fault:?}");
            assert_eq!(of(&Error::Fault(fault)), errno, "{fault:?}");
        }
    }

    #[test]
    fn errors_of_venus_and_of_names() {
        assert_eq!(of(&Error::Interrupted), Errno::INTR);
        assert_eq!(of(&Error::TimedOut), Errno::TIMEDOUT);
        assert_eq!(of(&Error::Lost), Errno::IO);
        assert_eq!(of(&Error::LockLost), Errno::IO);
        assert_eq!(of(&Error::Protocol), Errno::IO);
        assert_eq!(of(&Error::Closed("x".into())), Errno::NOTCONN);
        assert_eq!(of(&Error::BadHandle), Errno::BADF);
        assert_eq!(of_name(NameError::TooLong), Errno::NAMETOOLONG);
        assert_eq!(of_name(NameError::Empty), Errno::NOENT);
        assert_eq!(of_name(NameError::BadByte), Errno::INVAL);
        assert_eq!(of_name(NameError::Dots), Errno::INVAL);
    }
}
