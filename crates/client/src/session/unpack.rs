//! The thread that asked unpacks a packed answer, outside of all locks. Cache managers see clear
//! bytes only.

use std::ops::Range;

use types::{Answer, Call, Fault, Fid};

use crate::{CallError, Reply};

/// The range that a call reads, if it reads.
pub(crate) struct Wanted(Option<(Fid, Range<u64>)>);

impl Wanted {
    pub fn of(call: &Call) -> Wanted {
        Wanted(match call {
            Call::Read { fid, offset, length } => {
                Some((*fid, *offset..offset.saturating_add((*length).into())))
            }
            _ => None,
        })
    }

    /// The answer in clear form.
    ///
    /// # Errors
    /// `Damaged` if the bytes do not match their sums: then the server's copy is damaged, for
    /// connections have checksums of their own. Otherwise the error of `result`.
    pub fn unpack(self, result: Result<Reply, CallError>) -> Result<Reply, CallError> {
        let reply = result?;
        let Reply { answer: Answer::Packed { run, end, status }, body, verifier } = reply else {
            return Ok(reply);
        };
        let Some((fid, range)) = self.0 else { return Err(CallError::Fault(Fault::Invalid)) };
        match dafs::packed::unpack(&run, range) {
            Ok(data) => Ok(Reply { answer: Answer::Data { data, end, status }, body, verifier }),
            Err(error) => {
                tracing::warn!(%error, %fid, "a packed body is damaged at its server");
                Err(CallError::Fault(Fault::Damaged))
            }
        }
    }
}
