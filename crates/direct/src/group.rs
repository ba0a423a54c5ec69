//! Completion groups: where operations complete.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Completed, CompletionGroup, Reply};
use mem::arena::Buffer;
use parking_lot::Mutex;
use slab::Slab;
use types::{Answer, DataVersion, Fault};

use crate::{DirectConnection, DirectError};

/// A group of operations. Threads wait for some of them, whichever these are.
#[derive(Debug)]
pub struct Group {
    connection: DirectConnection,
    completions: Arc<CompletionGroup>,
    flying: Mutex<Slab<Flight>>,
}

/// An operation that is not complete.
#[derive(Debug)]
struct Flight {
    tag: u64,
    buffer: Arc<Buffer>,
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The number that the program gave it.
    pub tag: u64,
    /// The operation's buffer. After a read that many bytes of it are the file's.
    pub buffer: Buffer,
    /// How many bytes were moved, or why none were.
    pub result: Result<MovedBytes, DirectError>,
}

/// The outcome of an operation that moved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedBytes {
    /// So many bytes, fewer than the buffer's only at the end of the file.
    pub bytes: usize,
    /// Where they are in the file.
    pub offset: Option<u64>,
    /// The file's length after the operation.
    pub size: u64,
    /// The version of the file's data that was read or made.
    pub version: DataVersion,
}

impl Group {
    /// An empty group for operations on files of this connection.
    pub fn new(connection: &DirectConnection) -> Group {
        Group {
            connection: connection.clone(),
            completions: Arc::default(),
            flying: Mutex::default(),
        }
    }

    /// Operations that were begun and not returned by `wait` or `poll`.
    pub fn len(&self) -> usize {
        self.flying.lock().len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until `least` operations are complete, or all, for at most `within`; returns all that
    /// are, the earliest first.
    pub fn wait(&self, least: usize, within: Option<Duration>) -> Vec<Completion> {
        let least = least.min(self.len());
        let until = within.map(|within| Instant::now() + within);
        self.connection.session().wait_for(&self.completions, least, until);
        self.take()
    }

    /// The operations that are complete now. Makes no system call on the server's host.
    pub fn poll(&self) -> Vec<Completion> {
        if self.completions.is_empty() {
            self.connection.session().look_into_lane();
        }
        self.take()
    }

    /// Notes an operation: the number under which it completes.
    pub(crate) fn begin(&self, tag: u64, buffer: Arc<Buffer>) -> u64 {
        self.flying.lock().insert(Flight { tag, buffer }) as u64
    }

    /// It was not begun.
    pub(crate) fn forget(&self, number: u64) {
        drop(self.flying.lock().remove(number as usize));
    }

    pub(crate) fn completions(&self) -> &Arc<CompletionGroup> {
        &self.completions
    }

    fn take(&self) -> Vec<Completion> {
        let completed = self.completions.take();
        let mut flying = self.flying.lock();
        let flights: Vec<(Flight, Completed)> = completed
            .into_iter()
            .map(|completed| (flying.remove(completed.tag as usize), completed))
            .collect();
        drop(flying);
        flights.into_iter().map(|(flight, completed)| end(flight, completed)).collect()
    }
}

fn end(flight: Flight, completed: Completed) -> Completion {
    let result = completed.result.map_err(DirectError::from).and_then(moved);
    Completion { tag: flight.tag, buffer: own(flight.buffer), result }
}

/// The buffer, of which the session had a share until it gave the operation's frame up. It does so
/// before it reports the end; only a connection that is being closed may keep one for a moment.
fn own(mut buffer: Arc<Buffer>) -> Buffer {
    loop {
        match Arc::try_unwrap(buffer) {
            Ok(buffer) => return buffer,
            Err(shared) => buffer = shared,
        }
        std::thread::yield_now();
    }
}

fn moved(reply: Reply) -> Result<MovedBytes, DirectError> {
    match reply.answer {
        Answer::Data { status, data, .. } => Ok(MovedBytes {
            bytes: data.len(),
            offset: None,
            size: status.size,
            version: status.data_version,
        }),
        Answer::Written { count, offset, status, .. } => Ok(MovedBytes {
            bytes: count as usize,
            offset: Some(offset),
            size: status.size,
            version: status.data_version,
        }),
        _ => Err(DirectError::Refused(Fault::Invalid)),
    }
}
