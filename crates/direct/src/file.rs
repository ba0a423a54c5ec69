//! Operations on one file.

use std::sync::Arc;

use bytes::Bytes;
use mem::arena::Buffer;
use types::limits::PAYLOAD_BYTES_MAX;
use types::{Answer, Call, CreateHow, Fault, Fid, Name, NewKind};

use crate::group::Group;
use crate::{DirectConnection, DirectError};

/// A file. There is no position in it: each operation names its own.
#[derive(Clone, Debug)]
pub struct DirectFile {
    connection: DirectConnection,
    fid: Fid,
}

/// An operation that was not begun, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotBegun {
    /// The operation's buffer.
    pub buffer: Option<Buffer>,
    /// Why.
    pub error: DirectError,
}

/// A share of a buffer that a frame has.
struct Share(Arc<Buffer>);

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl DirectFile {
    /// Opens the file with this path in the volume.
    ///
    /// # Errors
    /// `Refused` with the server's reason.
    pub fn open(
        connection: &DirectConnection,
        volume: &str,
        path: &str,
    ) -> Result<DirectFile, DirectError> {
        let fid = connection.walk(volume, path)?.fid;
        Ok(DirectFile { connection: connection.clone(), fid })
    }

    /// Makes the file with this path in the volume, or opens it if it exists.
    ///
    /// # Errors
    /// `Refused` with the server's reason.
    pub fn create(
        connection: &DirectConnection,
        volume: &str,
        path: &str,
    ) -> Result<DirectFile, DirectError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = connection.walk(volume, parent)?.fid;
        let name = Name::new(name.as_bytes()).map_err(|_| DirectError::Refused(Fault::Invalid))?;
        let (kind, mode, how) = (NewKind::File, 0o666, CreateHow::Unchecked);
        match connection.call(Call::Make { dir, name, kind, mode, how })? {
            Answer::Made { status, .. } => {
                Ok(DirectFile { connection: connection.clone(), fid: status.fid })
            }
            _ => Err(DirectError::Refused(Fault::Invalid)),
        }
    }

    /// Begins to read from `offset` on into the buffer, as many bytes as it has. Completes into the
    /// group under `tag`.
    ///
    /// # Errors
    /// [`NotBegun`], with the buffer.
    pub fn read(
        &self,
        group: &Group,
        buffer: Buffer,
        offset: u64,
        tag: u64,
    ) -> Result<(), NotBegun> {
        let length = buffer.len() as u32;
        self.begin(group, buffer, tag, |_| Call::Read { fid: self.fid, offset, length })
    }

    /// Begins to write all of the buffer at `offset`. Completes into the group under `tag`; the
    /// bytes survive the server's process, and its host after [`DirectFile::commit`].
    ///
    /// # Errors
    /// [`NotBegun`], with the buffer.
    pub fn write(
        &self,
        group: &Group,
        buffer: Buffer,
        offset: u64,
        tag: u64,
    ) -> Result<(), NotBegun> {
        self.begin(group, buffer, tag, |data| self.writing(Some(offset), data))
    }

    /// Begins to write all of the buffer at the end of the file. The completion has the offset,
    /// which the server chose.
    ///
    /// # Errors
    /// [`NotBegun`], with the buffer.
    pub fn append(&self, group: &Group, buffer: Buffer, tag: u64) -> Result<(), NotBegun> {
        self.begin(group, buffer, tag, |data| self.writing(None, data))
    }

    /// Makes everything that was written and completed so far stable.
    ///
    /// # Errors
    /// `Refused`; `Lost`.
    pub fn commit(&self) -> Result<(), DirectError> {
        self.connection.call(Call::Commit { fid: self.fid }).map(drop)
    }

    fn writing(&self, offset: Option<u64>, data: Bytes) -> Call {
        Call::Write { fid: self.fid, offset, data, stable: false, kill_privileges: true }
    }

    fn begin(
        &self,
        group: &Group,
        buffer: Buffer,
        tag: u64,
        call: impl FnOnce(Bytes) -> Call,
    ) -> Result<(), NotBegun> {
        if buffer.is_empty() || buffer.len() > PAYLOAD_BYTES_MAX {
            let error = DirectError::Length(buffer.len());
            return Err(NotBegun { buffer: Some(buffer), error });
        }
        let Some(region) = self.connection.region_of(&buffer) else {
            return Err(NotBegun { buffer: Some(buffer), error: DirectError::ForeignBuffer });
        };
        let buffer = Arc::new(buffer);
        let call = call(Bytes::from_owner(Share(Arc::clone(&buffer))));
        let number = group.begin(tag, buffer);
        let (session, caller) = (self.connection.session(), self.connection.caller());
        let begun = session.submit(caller, call, Some(region), (group.completions(), number));
        begun.map_err(|error| {
            group.forget(number);
            NotBegun { buffer: None, error: error.into() }
        })
    }
}
