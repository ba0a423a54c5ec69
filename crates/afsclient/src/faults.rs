//! Codes with which AFS's calls end, as Rialto's faults: the mirror of `afsfront/codes.rs`.

use afs3::errors::{self, errno_from_uae};
use types::Fault;

/// The consequence of a code for the call that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The volume is not at this server: the location database knows better.
    Elsewhere,
    /// The server asks for patience.
    Later,
    /// The server does not serve the volume; another one may.
    NotServed,
    /// The service's refusal.
    Refused(Fault),
}

/// The meaning of a code of the file service.
pub(crate) fn meaning(code: i32) -> Meaning {
    match code {
        errors::VNOVOL | errors::VMOVED => Meaning::Elsewhere,
        errors::VBUSY | errors::VRESTARTING => Meaning::Later,
        // VIO: it has the volume in memory, and its files are gone, as after a move.
        errors::VOFFLINE
        | errors::VIO
        | errors::VSALVAGE
        | errors::VSALVAGING
        | errors::VNOSERVICE
        | errors::VONLINE => Meaning::NotServed,
        errors::VNOVNODE => Meaning::Refused(Fault::Stale),
        errors::VDISKFULL => Meaning::Refused(Fault::NoSpace),
        errors::VOVERQUOTA => Meaning::Refused(Fault::QuotaExceeded),
        errors::VVOLEXISTS => Meaning::Refused(Fault::Exists),
        errors::VRESTRICTED => Meaning::Refused(Fault::AccessDenied),
        errors::RXKADEXPIRED => Meaning::Refused(Fault::TokenExpired),
        errors::RXKADINCONSISTENCY..=errors::RXKADILLEGALLEVEL => {
            Meaning::Refused(Fault::TokenRefused)
        }
        errors::RXGEN_OPCODE => Meaning::Refused(Fault::Unsupported),
        code => Meaning::Refused(errno(errno_from_uae(code).unwrap_or(code))),
    }
}

/// The fault for an error number of Linux.
fn errno(number: i32) -> Fault {
    match number {
        1 => Fault::NotPermitted,
        2 => Fault::NotFound,
        // A lock that another host holds.
        11 => Fault::Locked,
        13 => Fault::AccessDenied,
        // A directory with entries is one that exists, as AFS's servers say (`directory_removal`).
        17 => Fault::Exists,
        18 => Fault::CrossVolume,
        20 => Fault::NotDirectory,
        21 => Fault::IsDirectory,
        22 => Fault::Invalid,
        27 => Fault::TooBig,
        28 => Fault::NoSpace,
        30 => Fault::ReadOnly,
        31 => Fault::TooManyLinks,
        36 => Fault::NameTooLong,
        39 => Fault::NotEmpty,
        95 => Fault::Unsupported,
        122 => Fault::QuotaExceeded,
        _ => Fault::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_means_the_same_as_number_and_as_uae() {
        for (code, fault) in [(13, Fault::AccessDenied), (17, Fault::Exists), (39, Fault::NotEmpty)]
        {
            assert_eq!(meaning(code), Meaning::Refused(fault));
            let uae = errors::uae_from_errno(code).unwrap();
            assert_eq!(meaning(uae), Meaning::Refused(fault));
        }
    }

    #[test]
    fn a_code_that_is_no_error_number_is_a_fault_all_the_same() {
        for code in [i32::MIN, -4096, -1, 0, 134, 4096, i32::MAX] {
            assert_eq!(meaning(code), Meaning::Refused(Fault::Medium), "{code}");
        }
    }

    #[test]
    fn codes_of_volumes_lead_elsewhere_or_to_patience() {
        assert_eq!(meaning(103), Meaning::Elsewhere);
        assert_eq!(meaning(111), Meaning::Elsewhere);
        assert_eq!(meaning(110), Meaning::Later);
        assert_eq!(meaning(-100), Meaning::Later);
        assert_eq!(meaning(106), Meaning::NotServed);
        assert_eq!(meaning(112), Meaning::NotServed);
        assert_eq!(meaning(19_270_409), Meaning::Refused(Fault::TokenExpired));
        assert_eq!(meaning(19_270_407), Meaning::Refused(Fault::TokenRefused));
        assert_eq!(meaning(i32::MIN), Meaning::Refused(Fault::Medium));
    }
}
