//! Where data and holes are. The status shows that a file has no holes: programs that search every
//! file for holes (`grep`, `cp`) then cause no call to the server.

use types::{Answer, Call, Fault, Fid, SeekWhat, Status};

use super::Venus;
use crate::base::{Error, OpenHandle, RequestContext};
use crate::core::Core;

/// The answer for a file of this status, if the status decides it: each block except holes is
/// charged, so a file that is charged for its whole length has no holes.
fn of_dense(status: &Status, offset: u64, what: SeekWhat) -> Option<Result<u64, Error>> {
    if status.used < status.size {
        return None;
    }
    Some(match what {
        _ if offset >= status.size => Err(Fault::NothingThere.into()),
        SeekWhat::Data => Ok(offset),
        SeekWhat::Hole => Ok(status.size),
    })
}

impl Venus {
    /// The next data or hole at or behind `offset`.
    ///
    /// # Errors
    /// [`Fault::NothingThere`] past the end.
    pub fn lseek(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        what: SeekWhat,
    ) -> Result<u64, Error> {
        let open = self.core.handles.open_of(handle)?;
        open.check_locks()?;
        self.core.writeback.send_all(&open.file, request.cancel)?;
        if let Some(found) = self.core.seek_here(open.file.fid, offset, what) {
            return found;
        }
        match self
            .core
            .calls
            .call(&open.request(request), Call::Seek { fid: open.file.fid, offset, what })?
        {
            Answer::Offset(offset) => Ok(offset),
            _ => Err(Error::Protocol),
        }
    }
}

impl Core {
    /// The answer as far as an exact status decides it.
    fn seek_here(&self, fid: Fid, offset: u64, what: SeekWhat) -> Option<Result<u64, Error>> {
        let (status, exact) = self.ground.names.lock().status(fid)?;
        if exact { of_dense(&status, offset, what) } else { None }
    }
}
