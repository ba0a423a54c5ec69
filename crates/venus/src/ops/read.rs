//! Reading through a handle (`reading/reader.rs`).

use bytes::Bytes;

use super::Venus;
use crate::base::{Error, OpenHandle, RequestContext};
use crate::data::CHUNK;

impl Venus {
    /// Up to `length` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn read(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let open = self.core.handles.open_of(handle)?;
        open.check_locks()?;
        open.file.note_read();
        let length = length.min(CHUNK as u32);
        if let Some(data) = open.file.pinned().and_then(|pinned| pinned.read(offset, length)) {
            return Ok(data);
        }
        loop {
            let losses = self.core.ground.server.losses();
            let data = self.core.reader.read_over_base(request, &open, offset, length)?;
            // Bytes that were written here are on their way again, over the fetched ones.
            if self.core.ground.server.losses() == losses {
                return Ok(data);
            }
        }
    }
}
