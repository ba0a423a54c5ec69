//! What may go wrong.

use types::{Fault, KeyPrint, Revision, VolumeId};

/// Why a call of the cell database failed. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The record was changed by somebody else: read it again.
    #[error("the record is at revision {} and not at {}", found.0, expected.0)]
    Conflict {
        /// What the caller had read.
        expected: Revision,
        /// What there is; 0: nothing.
        found: Revision,
    },
    /// Another group has this name or number.
    #[error("{what} belongs to the group of volume {}", by.0)]
    Taken {
        /// The name or number.
        what: String,
        /// Whose it is.
        by: VolumeId,
    },
    /// This key was withdrawn, and makes nobody a server any more.
    #[error("the key {key} was withdrawn")]
    Withdrawn {
        /// Which one.
        key: KeyPrint,
    },
    /// Changes so old are not remembered.
    #[error("changes are remembered from revision {} on", oldest.0)]
    Forgotten {
        /// The oldest revision that `changes` can still start from.
        oldest: Revision,
    },
    /// The caller gave what no record can hold.
    #[error("{0}")]
    Misuse(String),
    /// A record does not check, or is of a later program's form.
    #[error("cell database: {0} is damaged")]
    Damaged(String),
    /// Another program wrote it, which keeps it in another form. Nothing was opened.
    #[error(
        "{path} has format version {found}, this program knows {known}; use the program that \
            wrote it, or a newer one"
    )]
    Version {
        /// The file that says so.
        path: String,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The server that has the database refused, or cannot be asked.
    #[error("the server of the cell database: {0}")]
    Away(Fault),
    /// The disk failed, or is full.
    #[error("cell database: {0}")]
    Medium(String),
}

impl From<CellError> for Fault {
    fn from(error: CellError) -> Fault {
        match error {
            CellError::Conflict { .. } => Fault::Conflict,
            CellError::Taken { .. } => Fault::Exists,
            CellError::Withdrawn { .. } => Fault::NotPermitted,
            // What was forgotten cannot be found.
            CellError::Forgotten { .. } => Fault::NothingThere,
            CellError::Misuse(_) => Fault::Invalid,
            CellError::Damaged(_) => Fault::Damaged,
            CellError::Medium(_) | CellError::Version { .. } => Fault::Medium,
            CellError::Away(fault) => fault,
        }
    }
}
