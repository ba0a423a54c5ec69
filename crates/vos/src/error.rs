//! Why an operation was not done.

use celldb::CellError;
use types::{Busy, Fault, Name};

/// Why an operation stopped. What it had done by then is told by the database; the same operation
/// goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VosError {
    /// The database refused, or cannot be asked.
    #[error("{0}")]
    Cell(#[from] CellError),
    /// A server refused: this step was not done.
    #[error("{server}: {fault}")]
    Refused {
        /// What it is called.
        server: String,
        /// Why.
        fault: Fault,
    },
    /// A server does not answer: whether the step was done is unknown.
    #[error("{server} does not answer: {why}")]
    Away {
        /// What it is called.
        server: String,
        /// What was seen of it.
        why: String,
    },
    /// A server answered something else than was asked.
    #[error("{0} answered something else")]
    Odd(String),
    /// Somebody else is at work on the group, or was.
    #[error("{} is locked: {}, by \
        {}", String::from_utf8_lossy(name.as_bytes()), busy.operation, busy.by)]
    Busy {
        /// The group.
        name: Name,
        /// By whom.
        busy: Busy,
    },
    /// Neither the database nor a server that was asked knows it.
    #[error("no such volume")]
    NoVolume,
    /// What was asked for does not fit what there is.
    #[error("{0}")]
    Unfit(String),
}

impl VosError {
    /// What a server refused for.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            VosError::Refused { fault, .. } | VosError::Cell(CellError::Away(fault)) => {
                Some(*fault)
            }
            _ => None,
        }
    }

    /// Whether the step is known not to have been done.
    pub fn is_refusal(&self) -> bool {
        match self {
            VosError::Refused { .. }
            | VosError::NoVolume
            | VosError::Unfit(_)
            | VosError::Busy { .. } => true,
            VosError::Cell(error) => !matches!(error, CellError::Away(_) | CellError::Medium(_)),
            VosError::Away { .. } | VosError::Odd(_) => false,
        }
    }
}
