//! Where data and holes are. Of a file without holes its status says so: programs that look for
//! holes in every file that they read (`grep`, `cp`) then ask the server nothing.

use types::{Answer, Call, Fault, Fid, SeekWhat, Status};

use crate::core::Core;
use crate::{Error, OpenHandle, RequestContext, Venus};

/// The answer for a file of this status, if it can be said without looking: every block that is no
/// hole is charged, so what is charged for as many bytes as there are has none.
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

impl Core {
    /// As far as a status that is exact says it.
    fn seek_here(&self, fid: Fid, offset: u64, what: SeekWhat) -> Option<Result<u64, Error>> {
        let (status, exact) = self.tables.lock().status(fid)?;
        if exact { of_dense(&status, offset, what) } else { None }
    }
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
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        self.core.send_all(&open.file, request.cancel)?;
        if let Some(found) = self.core.seek_here(open.file.fid, offset, what) {
            return found;
        }
        match self
            .core
            .call(&open.request(request), Call::Seek { fid: open.file.fid, offset, what })?
        {
            Answer::Offset(offset) => Ok(offset),
            _ => Err(Error::Protocol),
        }
    }
}
