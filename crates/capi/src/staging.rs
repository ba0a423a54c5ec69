//! Reads and writes of memory that servers cannot access: its bytes go through buffers that they
//! can.
//!
//! Model: a connection has [`PIECES`] buffers of the length of one operation, made when they are
//! first needed. A call has some of them, as many as are free, with an operation on each. A thread
//! waits for a buffer only while it has none, so threads do not wait for each other in a circle.

use parking_lot::{Condvar, Mutex};
use rialto_client::{Buffer, Completion, DirectCell, DirectFile, Group, NotBegun};
use types::Fault;
use types::limits::PAYLOAD_BYTES_MAX;

use crate::error::{Failure, MEMORY, PROTOCOL, of_fault};
use crate::pointers::{In, Out};

/// As many operations as hide the way to a server and back; each has 1 MiB.
const PIECES: usize = 8;

/// The buffers of a connection.
pub(crate) struct Staging {
    cell: DirectCell,
    free: Mutex<Option<Vec<Buffer>>>,
    returned: Condvar,
}

/// A call that moves bytes.
struct Transfer<'a> {
    staging: &'a Staging,
    group: Group,
    /// The place in the caller's bytes at which the next operation begins, and their end.
    next: usize,
    end: usize,
    failed: Option<Failure>,
}

impl Staging {
    pub fn new(cell: DirectCell) -> Staging {
        Staging { cell, free: Mutex::new(None), returned: Condvar::new() }
    }

    /// A buffer of `bytes` bytes; `None`: none is free, and the caller has some.
    fn piece(&self, bytes: usize, has_some: bool) -> Result<Option<Buffer>, Failure> {
        let mut state = self.free.lock();
        if state.is_none() {
            let memory = self.cell.memory(PIECES * PAYLOAD_BYTES_MAX)?;
            let pieces = std::iter::repeat_with(|| memory.buffer(PAYLOAD_BYTES_MAX)).take(PIECES);
            let pieces = pieces.collect::<Option<Vec<Buffer>>>();
            *state = Some(pieces.ok_or_else(|| Failure::from(&MEMORY))?);
        }
        loop {
            match state.as_mut().and_then(Vec::pop) {
                Some(mut piece) => {
                    piece.resize(bytes);
                    return Ok(Some(piece));
                }
                None if has_some => return Ok(None),
                None => self.returned.wait(&mut state),
            }
        }
    }

    fn give_back(&self, piece: Buffer) {
        self.free.lock().get_or_insert_default().push(piece);
        self.returned.notify_one();
    }

    /// Reads from `offset` on; returns how many bytes, fewer than there is room for only at the end
    /// of the file.
    ///
    /// # Errors
    /// Those of the library; bytes past the largest offset.
    pub fn read(
        &self,
        file: &DirectFile,
        to: &mut Out<'_, u8>,
        offset: u64,
    ) -> Result<usize, Failure> {
        check_end(offset, to.room())?;
        let mut transfer = Transfer::new(self, to.room());
        loop {
            transfer
                .fill(|group, at, piece| file.read(group, piece, offset + at as u64, at as u64));
            if transfer.group.is_empty() {
                return transfer.result();
            }
            transfer.take(|at, piece, moved| to.copy(at, &piece[..moved]));
        }
    }

    /// Writes all at `offset`.
    ///
    /// # Errors
    /// Those of the library; bytes past the largest offset.
    pub fn write(&self, file: &DirectFile, from: &In<'_>, offset: u64) -> Result<usize, Failure> {
        check_end(offset, from.len())?;
        let mut transfer = Transfer::new(self, from.len());
        loop {
            transfer.fill(|group, at, mut piece| {
                from.copy(at, &mut piece);
                file.write(group, piece, offset + at as u64, at as u64)
            });
            if transfer.group.is_empty() {
                return transfer.result();
            }
            transfer.take(|_, _, _| {});
        }
    }

    /// Writes all at the end of the file, one operation after the other; returns where the first
    /// one's bytes are.
    ///
    /// # Errors
    /// Those of the library.
    pub fn append(&self, file: &DirectFile, from: &In<'_>) -> Result<Option<u64>, Failure> {
        let (group, mut at, mut first) = (Group::new(), 0, None);
        while at < from.len() {
            let bytes = (from.len() - at).min(PAYLOAD_BYTES_MAX);
            let mut piece = self.piece(bytes, false)?.expect("this call waits for one");
            from.copy(at, &mut piece);
            if let Err(NotBegun { buffer, error }) = file.append(&group, piece, 0) {
                self.give_back(buffer);
                return Err(error.into());
            }
            for Completion { buffer, result, .. } in group.wait(1, None) {
                self.give_back(buffer);
                let moved = result?;
                if moved.bytes != bytes {
                    return Err((&PROTOCOL).into());
                }
                first = first.or(moved.offset);
            }
            at += bytes;
        }
        Ok(first)
    }
}

impl<'a> Transfer<'a> {
    fn new(staging: &'a Staging, end: usize) -> Transfer<'a> {
        Transfer { staging, group: Group::new(), next: 0, end, failed: None }
    }

    /// Begins operations while there are buffers and bytes.
    fn fill(&mut self, mut begin: impl FnMut(&Group, usize, Buffer) -> Result<(), NotBegun>) {
        while self.next < self.end && self.failed.is_none() {
            let bytes = (self.end - self.next).min(PAYLOAD_BYTES_MAX);
            match self.staging.piece(bytes, !self.group.is_empty()) {
                Err(failure) => self.failed = Some(failure),
                Ok(None) => return,
                Ok(Some(piece)) => match begin(&self.group, self.next, piece) {
                    Ok(()) => self.next += bytes,
                    Err(NotBegun { buffer, error }) => {
                        self.staging.give_back(buffer);
                        self.failed = Some(error.into());
                    }
                },
            }
        }
    }

    /// Waits for some operations, and hands each to `taken`: its place, its buffer, and how many
    /// bytes were moved.
    fn take(&mut self, mut taken: impl FnMut(usize, &Buffer, usize)) {
        for Completion { tag, buffer, result } in self.group.wait(1, None) {
            let at = tag as usize;
            match result {
                Ok(moved) => {
                    taken(at, &buffer, moved.bytes);
                    if moved.bytes < buffer.len() {
                        self.end = self.end.min(at + moved.bytes);
                    }
                }
                Err(error) => self.failed = Some(error.into()),
            }
            self.staging.give_back(buffer);
        }
    }

    fn result(self) -> Result<usize, Failure> {
        self.failed.map_or(Ok(self.end), Err)
    }
}

/// A place that no offset can name is past the end of the largest file.
fn check_end(offset: u64, bytes: usize) -> Result<(), Failure> {
    match offset.checked_add(bytes as u64) {
        Some(_) => Ok(()),
        None => Err(Failure { number: of_fault(Fault::TooBig), text: Fault::TooBig.to_string() }),
    }
}
