//! Errors of an operation.

use afscell::AfsCode;
use celldb::CellError;
use types::{Busy, Fault, Name};

/// Why an operation stopped. The database records the steps that it had done; the same operation
/// continues from them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VosError {
    /// The database refused, or does not answer.
    #[error("{0}")]
    Cell(#[from] CellError),
    /// A server refused: this step was not done.
    #[error("{server}: {fault}")]
    Refused {
        /// The server's name.
        server: String,
        /// The reason of the refusal.
        fault: Fault,
    },
    /// A volume server refused a call of AFS's protocol, or ended it in the middle.
    #[error("{server} refuses {call}: {}", AfsCode(*.code))]
    AfsRefused {
        /// The server's name.
        server: String,
        /// The procedure.
        call: &'static str,
        /// Its code.
        code: i32,
    },
    /// A volume server takes this call only from a caller with the cell's key.
    #[error("{server} takes this only from a caller who has the cell's key of AFS")]
    NoAfsKey {
        /// The server's name.
        server: String,
    },
    /// A server does not answer: whether the step was done is unknown.
    #[error("{server} does not answer: {why}")]
    Away {
        /// The server's name.
        server: String,
        /// The observed symptom.
        why: String,
    },
    /// A server's answer does not belong to the call.
    #[error("{0} answered something else")]
    Odd(String),
    /// Another operation has claimed the group.
    #[error("{} is locked: {}, by \
        {}", String::from_utf8_lossy(name.as_bytes()), busy.operation, busy.by)]
    Busy {
        /// The group.
        name: Name,
        /// The operation and its leader.
        busy: Busy,
    },
    /// Neither the database nor a server that was asked has it.
    #[error("no such volume")]
    NoVolume,
    /// A restore over the volume stopped before its end, so the volume has no whole state.
    #[error(
        "a restore over it stopped before its end: repeat 'vos restore -overwrite' with the \
         same dump, or remove the volume"
    )]
    HalfRestored,
    /// The request does not fit the state of the cell.
    #[error("{0}")]
    Unfit(String),
}

impl VosError {
    /// The fault with which a server refused.
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
            | VosError::AfsRefused { .. }
            | VosError::NoAfsKey { .. }
            | VosError::NoVolume
            | VosError::HalfRestored
            | VosError::Unfit(_)
            | VosError::Busy { .. } => true,
            VosError::Cell(error) => !matches!(error, CellError::Away(_) | CellError::Medium(_)),
            VosError::Away { .. } | VosError::Odd(_) => false,
        }
    }
}
