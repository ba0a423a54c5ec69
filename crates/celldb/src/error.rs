//! Errors of the cell database.

use types::{Fault, KeyPrint, Revision, VolumeId};

/// Why a call of the cell database failed. Nothing was changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// Another caller changed the record meanwhile: read it again.
    #[error("the record is at revision {} and not at {}", found.0, expected.0)]
    Conflict {
        /// The revision that the caller had read.
        expected: Revision,
        /// The present revision; 0: there is no record.
        found: Revision,
    },
    /// Another group has this name or number.
    #[error("{what} belongs to the group of volume {}", by.0)]
    Taken {
        /// The name or number, with its kind.
        what: String,
        /// The read-write volume of that group.
        by: VolumeId,
    },
    /// This key was withdrawn, and no server can use it any more.
    #[error("the key {key} was withdrawn")]
    Withdrawn {
        /// The withdrawn key.
        key: KeyPrint,
    },
    /// Changes that old are no longer stored.
    #[error("changes are stored from revision {} on", oldest.0)]
    Forgotten {
        /// The oldest revision that `changes` can still start from.
        oldest: Revision,
    },
    /// The caller gave a record that is not consistent.
    #[error("{0}")]
    Misuse(String),
    /// A record's checksum is wrong, or a later program wrote it.
    #[error("cell database: {0} is damaged")]
    Damaged(String),
    /// Another program wrote the database, in another format. Nothing was opened.
    #[error(
        "{path} has format version {found}, this program knows {known}; use the program that \
            wrote it, or a newer one"
    )]
    Version {
        /// The file with the version.
        path: String,
        /// Its version.
        found: u32,
        /// The version of this program.
        known: u32,
    },
    /// The cell's level is not one that this program knows. Nothing was changed.
    #[error(
        "the cell is at level {found}, this program knows levels up to {known}; start a newer \
            program on this server"
    )]
    Level {
        /// The cell's level.
        found: u32,
        /// The highest level that this program knows.
        known: u32,
    },
    /// These servers have not told that they know the level to which the cell shall rise.
    #[error("these servers do not know level {level}: {}", servers.join(", "))]
    Behind {
        /// The level.
        level: u32,
        /// Their names.
        servers: Vec<String>,
    },
    /// Programs that the cell's level permits could not read the record.
    #[error(
        "{what} need level {needed} of the cell: 'rialto cell upgrade' raises it when all servers \
            run a program that knows it"
    )]
    LevelTooLow {
        /// The records of this kind.
        what: &'static str,
        /// The level that has them.
        needed: u32,
    },
    /// The server that has the database refused, or cannot be asked.
    #[error("the server of the cell database: {0}")]
    Away(Fault),
    /// The database is elsewhere now, and this place never has it again.
    #[error("{from} has the cell's database no more: it is in {to}")]
    Moved {
        /// The place that had it.
        from: String,
        /// The place that has it.
        to: String,
    },
    /// etcd does not answer, or has no leader. Whether a change was made is unknown.
    #[error(
        "etcd, which has the cell's database, does not answer or has no quorum ({0}); known users \
         and volumes are served, and changes are refused until it has"
    )]
    NoQuorum(String),
    /// The disk failed, or is full.
    #[error("cell database: {0}")]
    Medium(String),
}

impl From<CellError> for Fault {
    fn from(error: CellError) -> Fault {
        match error {
            CellError::Conflict { .. } | CellError::Behind { .. } => Fault::Conflict,
            CellError::LevelTooLow { .. } => Fault::Unsupported,
            CellError::Taken { .. } => Fault::Exists,
            CellError::Withdrawn { .. } => Fault::NotPermitted,
            // Changes that were removed cannot be found.
            CellError::Forgotten { .. } => Fault::NothingThere,
            CellError::Misuse(_) => Fault::Invalid,
            CellError::Damaged(_) => Fault::Damaged,
            CellError::Medium(_) | CellError::Version { .. } => Fault::Medium,
            CellError::Away(fault) => fault,
            CellError::Moved { .. } | CellError::NoQuorum(_) | CellError::Level { .. } => {
                Fault::CellAway
            }
        }
    }
}
