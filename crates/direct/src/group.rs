//! Completion groups: where operations complete.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::{CallError, Completed, CompletionGroup, Remote, RemoteVolume, Reply, Submitted};
use mem::arena::{Arena, Buffer};
use parking_lot::Mutex;
use slab::Slab;
use types::{Answer, Call, Caller, DataVersion, Fault};

use crate::DirectError;
use crate::hold::FileHold;

/// How long a thread waits at one session while others have operations of its group, too.
const SLICE: Duration = Duration::from_micros(500);

/// A group of operations. Threads wait for some of them, whichever these are.
#[derive(Default)]
pub struct Group {
    completions: Arc<CompletionGroup>,
    flying: Mutex<Slab<Flight>>,
    begun: AtomicU64,
    /// One thread waits at a time: two could each wait for what the other one has taken.
    waiting: Mutex<()>,
}

/// An operation that was begun.
struct Flight {
    /// Distinguishes it from a later one at the same place.
    serial: u64,
    operation: Operation,
    /// `None`: it is being submitted.
    submitted: Option<Submitted>,
    /// The program asked to give it up.
    is_cancelled: bool,
}

/// An operation that is not complete.
pub(crate) struct Operation {
    pub tag: u64,
    pub buffer: Arc<Buffer>,
    pub volume: Arc<RemoteVolume>,
    pub caller: Caller,
    pub call: Call,
    /// The file's: its open and its locks stay while the operation is in progress.
    pub hold: Arc<OnceLock<FileHold>>,
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
    /// Of a write: where they are in the file.
    pub offset: Option<u64>,
    /// The file's length after the operation.
    pub size: u64,
    /// The version of the file's data that was read or made.
    pub version: DataVersion,
}

impl Group {
    /// An empty group.
    pub fn new() -> Group {
        Group::default()
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
    /// are, the earliest first. If another thread waits for the group, waits until that one is done
    /// first.
    pub fn wait(&self, least: usize, within: Option<Duration>) -> Vec<Completion> {
        let until = within.map(|within| Instant::now() + within);
        let waiting = match until {
            None => Some(self.waiting.lock()),
            Some(until) => self.waiting.try_lock_until(until),
        };
        let Some(_waiting) = waiting else { return Vec::new() };
        let least = least.min(self.len());
        while self.completions.len() < least && until.is_none_or(|until| Instant::now() < until) {
            match &self.volumes()[..] {
                [] => break,
                [volume] => volume.wait_for(&self.completions, least, until),
                volumes => {
                    for volume in volumes {
                        let slice = Instant::now() + SLICE;
                        let slice = until.map_or(slice, |until| until.min(slice));
                        volume.wait_for(&self.completions, least, Some(slice));
                    }
                }
            }
        }
        self.take()
    }

    /// The operations that are complete now; none while another thread waits for the group. Makes
    /// no system call on the server's host.
    pub fn poll(&self) -> Vec<Completion> {
        let Some(_waiting) = self.waiting.try_lock() else { return Vec::new() };
        if self.completions.is_empty() {
            self.volumes().iter().for_each(|volume| volume.look_into_lane());
        }
        self.take()
    }

    /// Asks servers to give up the operations with this tag that are in progress. Each completes in
    /// any case: with `Refused(Cancelled)` if it still waited, otherwise as if nothing had been
    /// asked. Returns how many there are.
    pub fn cancel(&self, tag: u64) -> usize {
        let mut flying = self.flying.lock();
        let tagged = flying.iter_mut().filter(|(_, flight)| flight.operation.tag == tag);
        let found: Vec<(Arc<RemoteVolume>, Submitted)> = tagged
            .filter_map(|(_, flight)| {
                flight.is_cancelled = true;
                Some((Arc::clone(&flight.operation.volume), flight.submitted?))
            })
            .collect();
        drop(flying);
        found.iter().for_each(|(volume, submitted)| volume.cancel_submitted(*submitted));
        found.len()
    }

    /// The volumes that have operations in progress, each once.
    fn volumes(&self) -> Vec<Arc<RemoteVolume>> {
        let mut volumes: Vec<Arc<RemoteVolume>> = Vec::with_capacity(1);
        for (_, Flight { operation, .. }) in self.flying.lock().iter() {
            if volumes.iter().all(|volume| !Arc::ptr_eq(volume, &operation.volume)) {
                volumes.push(Arc::clone(&operation.volume));
            }
        }
        volumes
    }

    /// Begins an operation; gives the buffer back if that fails.
    pub(crate) fn begin(&self, operation: Operation) -> Result<(), (Buffer, DirectError)> {
        let Operation { buffer, volume, caller, call, hold, .. } = &operation;
        let (buffer, volume, hold) = (Arc::clone(buffer), Arc::clone(volume), Arc::clone(hold));
        let (caller, call) = (caller.clone(), call.clone());
        let serial = self.begun.fetch_add(1, Ordering::Relaxed);
        let (submitted, is_cancelled) = (None, false);
        let flight = Flight { serial, operation, submitted, is_cancelled };
        let number = self.flying.lock().insert(flight);
        let into = (&self.completions, number as u64);
        let begun = loop {
            match hold.get().filter(|hold| hold.is_of_session()) {
                None => {
                    break volume.submit(&caller, call, Some(&buffer), into).map_err(Into::into);
                }
                Some(hold) => {
                    let call = call.clone();
                    match volume.submit_in_session(&caller, call, Some(&buffer), into) {
                        Err(CallError::Cancelled) => {
                            if let Err(error) = hold.begin() {
                                break Err(error);
                            }
                        }
                        begun => break begun.map_err(Into::into),
                    }
                }
            }
        };
        match begun {
            Ok(submitted) => {
                // It may be complete already, and another one have its place.
                let mut flying = self.flying.lock();
                if let Some(flight) = flying.get_mut(number).filter(|it| it.serial == serial) {
                    flight.submitted = Some(submitted);
                }
                Ok(())
            }
            Err(error) => {
                drop(self.flying.lock().remove(number));
                Err((own(buffer), error))
            }
        }
    }

    fn take(&self) -> Vec<Completion> {
        let completed = self.completions.take();
        let mut flying = self.flying.lock();
        let ended: Vec<(Flight, Completed)> = completed
            .into_iter()
            .map(|completed| (flying.remove(completed.tag as usize), completed))
            .collect();
        drop(flying);
        ended.into_iter().map(|(flight, completed)| end(flight, completed)).collect()
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("in_progress", &self.len()).finish_non_exhaustive()
    }
}

/// An operation is over. If the volume was not where it was asked for, it is made again where the
/// volume is, and this thread waits for that: it happens once in a move. So is one that was not
/// sent before the connection broke, since only the session of then may have been sent it.
fn end(flight: Flight, completed: Completed) -> Completion {
    let Flight { operation, is_cancelled, .. } = flight;
    let Operation { tag, buffer, volume, caller, call, hold } = operation;
    let is_elsewhere =
        matches!(completed.result, Err(CallError::Fault(Fault::NoVolume | Fault::Offline)));
    let is_unsent = !is_cancelled && matches!(completed.result, Err(CallError::Cancelled));
    let result = match hold.get() {
        Some(hold) if is_unsent => hold.call(&call),
        _ if is_elsewhere => volume.call(&caller, call.clone(), None).map_err(DirectError::from),
        _ => completed.result.map_err(DirectError::from),
    };
    drop(call);
    let mut buffer = if is_known(&result) { own(buffer) } else { another(buffer) };
    if (is_elsewhere || is_unsent)
        && let Ok(Reply { answer: Answer::Data { data, .. }, .. }) = &result
    {
        buffer[..data.len()].copy_from_slice(data);
    }
    let moved = result.and_then(moved);
    Completion { tag, buffer, result: moved.and_then(|moved| kept(&hold).map(|()| moved)) }
}

/// Does the server access the buffer no more?
fn is_known(result: &Result<Reply, DirectError>) -> bool {
    match result {
        Err(DirectError::Refused(fault)) => *fault != Fault::Cancelled,
        Ok(_) | Err(DirectError::LostOpen | DirectError::LostLock | DirectError::Closed) => true,
        Err(_) => false,
    }
}

/// Was the operation's file open and locked to its end, as the program thinks?
fn kept(hold: &OnceLock<FileHold>) -> Result<(), DirectError> {
    match hold.get().map_or(Ok(()), FileHold::check) {
        // That is the program's wish, and the operation was begun before.
        Err(DirectError::Closed) => Ok(()),
        kept => kept,
    }
}

/// A buffer instead of one that the server may still access: it may have been stopped in the middle
/// of an operation of a session that is over. That one's memory is never used again.
fn another(buffer: Arc<Buffer>) -> Buffer {
    let bytes = buffer.len();
    let other = buffer.arena().buffer(bytes).or_else(|| {
        let arena = Arena::create("rialto-memory", bytes).ok()?;
        arena.buffer(bytes)
    });
    match other {
        Some(other) => {
            own(buffer).abandon();
            other
        }
        // Without memory for another one the program gets an empty one.
        None => {
            let mut empty = own(buffer);
            empty.resize(0);
            empty
        }
    }
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
        _ => Err(DirectError::Odd),
    }
}
