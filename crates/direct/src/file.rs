//! Operations on one file.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use client::{Remote, RemoteVolume};
use mem::arena::Buffer;
use types::limits::PAYLOAD_BYTES_MAX;
use types::{Answer, Call, CreateHow, Fid, NewKind, Status, StatusChange};

use crate::group::{Group, Operation};
use crate::hold::FileHold;
use crate::path::{LastLink, Place};
use crate::{DirectCell, DirectError};

/// A file. There is no position in it: each operation names its own. Clones share its open and its
/// locks, if there are any.
#[derive(Clone)]
pub struct DirectFile {
    pub(crate) cell: DirectCell,
    pub(crate) volume: Arc<RemoteVolume>,
    pub(crate) fid: Fid,
    /// Its open and its locks at the server, once there are some.
    pub(crate) hold: Arc<OnceLock<FileHold>>,
}

/// An operation that was not begun, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotBegun {
    /// The operation's buffer.
    pub buffer: Buffer,
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
    /// Names the file with this path. It is not opened at the server: others may do with it
    /// whatever they may, and an operation is refused while an open of others denies it.
    ///
    /// # Errors
    /// `Refused` with the server's reason; errors of the path.
    pub fn open(cell: &DirectCell, path: &str) -> Result<DirectFile, DirectError> {
        let place = Place::find(cell, path, LastLink::Followed)?;
        let fid = place.fid();
        Ok(Self::at(cell, place.volume, fid))
    }

    pub(crate) fn at(cell: &DirectCell, volume: Arc<RemoteVolume>, fid: Fid) -> DirectFile {
        DirectFile { cell: cell.clone(), volume, fid, hold: Arc::default() }
    }

    /// Makes the file with this path and mode, or opens it if it exists.
    ///
    /// # Errors
    /// As [`DirectFile::open`].
    pub fn create(cell: &DirectCell, path: &str, mode: u16) -> Result<DirectFile, DirectError> {
        Self::make(cell, path, mode, CreateHow::Unchecked)
    }

    /// Makes the file with this path and mode.
    ///
    /// # Errors
    /// As [`DirectFile::open`]; `Exists`.
    pub fn create_new(cell: &DirectCell, path: &str, mode: u16) -> Result<DirectFile, DirectError> {
        Self::make(cell, path, mode, CreateHow::Guarded)
    }

    fn make(
        cell: &DirectCell,
        path: &str,
        mode: u16,
        how: CreateHow,
    ) -> Result<DirectFile, DirectError> {
        let (Place { volume, status }, name) = Place::parent(cell, path)?;
        let kind = NewKind::File;
        let call = Call::Make { dir: status.fid, name, kind, mode, how };
        match volume.call(cell.caller(), call, None)?.answer {
            Answer::Made { status, .. } => Ok(Self::at(cell, volume, status.fid)),
            _ => Err(DirectError::Odd),
        }
    }

    /// Makes a file without a name in the directory. It ends with the session, unless it is given a
    /// name before.
    ///
    /// # Errors
    /// As [`DirectFile::open`].
    pub fn unnamed(cell: &DirectCell, dir: &str, mode: u16) -> Result<DirectFile, DirectError> {
        let Place { volume, status } = Place::find(cell, dir, LastLink::Followed)?;
        let call = Call::MakeUnnamed { dir: status.fid, mode };
        match volume.call(cell.caller(), call, None)?.answer {
            Answer::Status(status) => Ok(Self::at(cell, volume, status.fid)),
            _ => Err(DirectError::Odd),
        }
    }

    /// The file's status now.
    ///
    /// # Errors
    /// `Refused`; `Lost`; `LostOpen`; `LostLock`; `Closed`.
    pub fn status(&self) -> Result<Status, DirectError> {
        match self.call(Call::GetStatus { fid: self.fid })? {
            Answer::Status(status) => Ok(status),
            _ => Err(DirectError::Odd),
        }
    }

    /// Cuts the file, or makes it longer with zeros.
    ///
    /// # Errors
    /// `Refused`; `Lost`; `LostOpen`; `LostLock`; `Closed`.
    pub fn set_size(&self, size: u64) -> Result<(), DirectError> {
        let change = StatusChange { size: Some(size), ..StatusChange::default() };
        self.call(Call::SetStatus { fid: self.fid, change }).map(drop)
    }

    fn call(&self, call: Call) -> Result<Answer, DirectError> {
        match self.hold.get() {
            Some(hold) => Ok(hold.call(&call)?.answer),
            None => Ok(self.volume.call(self.cell.caller(), call, None)?.answer),
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
    /// `Refused`; `Lost`; `LostOpen`; `LostLock`; `Closed`.
    pub fn commit(&self) -> Result<(), DirectError> {
        self.call(Call::Commit { fid: self.fid }).map(drop)
    }

    /// Makes everything in the file's volume stable that was written and completed so far: one wait
    /// for the disk, however many files there are.
    ///
    /// # Errors
    /// `Refused`; `Lost`; `LostOpen`; `LostLock`; `Closed`.
    pub fn commit_volume(&self) -> Result<(), DirectError> {
        self.call(Call::CommitVolume { fid: self.fid }).map(drop)
    }

    fn writing(&self, offset: Option<u64>, data: Bytes) -> Call {
        Call::Write { fid: self.fid, offset, data, stable: false, kill_privileges: true }
    }

    fn begin(
        &self,
        group: &Group,
        buffer: Buffer,
        tag: u64,
        call: impl Fn(Bytes) -> Call,
    ) -> Result<(), NotBegun> {
        if buffer.is_empty() || buffer.len() > PAYLOAD_BYTES_MAX {
            let error = DirectError::Length(buffer.len());
            return Err(NotBegun { buffer, error });
        }
        if let Err(error) = self.hold.get().map_or(Ok(()), FileHold::begin) {
            return Err(NotBegun { buffer, error });
        }
        let buffer = Arc::new(buffer);
        let call = call(Bytes::from_owner(Share(Arc::clone(&buffer))));
        group
            .begin(Operation {
                tag,
                buffer,
                volume: Arc::clone(&self.volume),
                caller: self.cell.caller().clone(),
                call,
                hold: Arc::clone(&self.hold),
            })
            .map_err(|(buffer, error)| NotBegun { buffer, error })
    }
}
