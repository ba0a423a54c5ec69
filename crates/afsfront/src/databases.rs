//! The databases from which the location and the protection service answer.

use afs3::errors::UNOTSYNC;

use crate::Refusal;

/// Where changes of locations, users and groups are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Databases {
    /// Here: the cell is Rialto's.
    Own,
    /// In the databases of OpenAFS that the cell follows; here are copies (MX-3).
    Followed,
}

impl Databases {
    /// Refuses a change of a copy, so that clients look for a server that takes it.
    pub(crate) fn need_own(self) -> Result<(), Refusal> {
        match self {
            Databases::Own => Ok(()),
            Databases::Followed => Err(Refusal(UNOTSYNC)),
        }
    }
}
