//! Writing, syncing and reserving through a handle (`writeback/writer.rs`).

use bytes::Bytes;
use types::{AllocateMode, Answer, Call, Fault, limits};

use super::Venus;
use crate::base::{Error, OpenHandle, RequestContext, WriteOptions, Wrote};
use crate::data::{CHUNK, Cut};

impl Venus {
    /// Writes all of `data` (at most 1 MiB), at the end of the file if the handle appends and these
    /// are no pages of a map. It reaches the server at the latest at flush, fsync, unlock, or after
    /// a second.
    ///
    /// # Errors
    /// Its own, or that of an earlier background write, once for each handle.
    pub fn write(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        data: Bytes,
        how: impl Into<WriteOptions>,
    ) -> Result<Wrote, Error> {
        let WriteOptions { kill_privileges, pages } = how.into();
        let open = self.core.handles.open_of(handle)?;
        open.check_locks()?;
        open.take_error()?;
        if !open.mode.write || data.len() > CHUNK {
            return Err(Fault::Invalid.into());
        }
        if offset.saturating_add(data.len() as u64) > limits::FILE_BYTES_MAX {
            return Err(Fault::TooBig.into());
        }
        // The kernel writes pages back through any open file, also one that appends.
        if open.mode.append && !pages {
            return self.core.writeback.append(request, &open, offset, &data, kill_privileges);
        }
        let count = data.len() as u32;
        self.core.writeback.write_behind(&open, offset, data, kill_privileges, request.cancel)?;
        Ok(Wrote { count, offset })
    }

    /// Makes all writes stable.
    ///
    /// # Errors
    /// Its own, or that of an earlier background write, once for each handle.
    pub fn fsync(&self, request: &RequestContext<'_>, handle: OpenHandle) -> Result<(), Error> {
        let open = self.core.handles.open_of(handle)?;
        open.check_locks()?;
        let committed = self.core.writeback.commit(request, &open.file);
        let lost = self.core.unstable.report_loss(open.file.fid);
        open.take_error().and(committed).and(lost)
    }

    /// Reserves, zeroes or punches.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fallocate(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<(), Error> {
        let open = self.core.handles.open_of(handle)?;
        open.check_locks()?;
        self.core.writeback.send_all(&open.file, request.cancel)?;
        self.core.preallocated.adopt(&open.file, request.cancel)?;
        open.take_error()?;
        let cut = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => Cut::default(),
            _ => self.core.writeback.cut_unstable(
                request,
                &open.file,
                offset,
                offset.saturating_add(length),
            )?,
        };
        let mut call = Call::Allocate { fid: open.file.fid, offset, length, mode };
        let _away = self.core.ground.names.away(&mut call);
        let snapshot = self.core.ground.names.begin();
        let answer = self.core.calls.call(&open.request(request), call);
        match answer.inspect_err(|why| self.core.unstable.restore(&open.file, cut, why))? {
            Answer::Written { status, .. } => self.core.ground.names.lock().put(snapshot, status),
            _ => return Err(Error::Protocol),
        };
        self.core.cache_bodies.follow_now(&open.file, request.cancel)
    }
}
