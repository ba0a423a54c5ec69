//! Operations that are begun, and those that are complete.
//!
//! Model: a buffer is *here*, *lent* to an operation, or *released*. An operation is *flying* from
//! the moment at which its buffer was lent. Its completion is *ready* in the group until a caller
//! has room for it. One thread at a time takes completions of a group: two could each wait for what
//! the other one has taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rialto_client::{Buffer, Completion, DirectError, Group, NotBegun};
use slab::Slab;

use crate::error::{Failure, HANDLE, IN_USE, LENGTH};
use crate::handle::{Handle, Handled, Table};

/// A buffer of the program.
pub struct BufferObject {
    state: Mutex<BufferState>,
    /// Where its bytes are, for the program.
    pub address: usize,
    pub bytes: usize,
}

enum BufferState {
    Here(Buffer),
    Lent,
    Released,
}

impl Handled for BufferObject {
    const NAME: &'static str = "buffer";

    fn table() -> &'static Table<Self> {
        static TABLE: Table<BufferObject> = Table::new();
        &TABLE
    }
}

impl BufferObject {
    pub fn new(mut buffer: Buffer) -> BufferObject {
        let (address, bytes) = (buffer.as_mut_ptr().expose_provenance(), buffer.len());
        BufferObject { state: Mutex::new(BufferState::Here(buffer)), address, bytes }
    }

    /// Gives the first `bytes` bytes to an operation.
    fn lend(&self, bytes: usize) -> Result<Buffer, Failure> {
        if bytes > self.bytes {
            let text = format!("{bytes} bytes of a buffer that has {}", self.bytes);
            return Err(LENGTH.because(text));
        }
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, BufferState::Lent) {
            BufferState::Here(mut buffer) => {
                buffer.truncate(bytes);
                Ok(buffer)
            }
            BufferState::Lent => Err(IN_USE.because("an operation has the buffer")),
            BufferState::Released => {
                *state = BufferState::Released;
                Err((&HANDLE).into())
            }
        }
    }

    fn give_back(&self, mut buffer: Buffer) {
        buffer.resize(self.bytes);
        *self.state.lock() = BufferState::Here(buffer);
    }

    /// Ends it, if no operation has it.
    ///
    /// # Errors
    /// `IN_USE`.
    pub fn release(&self) -> Result<(), Failure> {
        let mut state = self.state.lock();
        match &*state {
            BufferState::Lent => Err(IN_USE.because("an operation has the buffer")),
            BufferState::Here(_) | BufferState::Released => {
                *state = BufferState::Released;
                Ok(())
            }
        }
    }
}

/// A completion as C has it: `rialto_completion_t`.
#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
pub struct CompletionRecord {
    pub tag: u64,
    pub buffer: Handle<BufferObject>,
    pub error: i32,
    pub reserved: u32,
    pub bytes: u64,
    pub offset: u64,
    pub size: u64,
    pub version: u64,
}

/// A group of the program, or a connection's default one.
#[derive(Default)]
pub struct GroupObject {
    group: Group,
    flying: Mutex<Flights>,
    /// The thread that takes completions holds this lock while it waits.
    ready: Mutex<VecDeque<CompletionRecord>>,
    /// Operations that are flying or ready.
    count: AtomicUsize,
}

#[derive(Default)]
struct Flights {
    all: Slab<Flight>,
    is_closed: bool,
}

/// An operation that is not complete.
struct Flight {
    tag: u64,
    handle: usize,
    buffer: Arc<BufferObject>,
    offset: u64,
}

impl Handled for GroupObject {
    const NAME: &'static str = "group";

    fn table() -> &'static Table<Self> {
        static TABLE: Table<GroupObject> = Table::new();
        &TABLE
    }
}

/// How long a caller waits.
pub(crate) enum Patience {
    /// It looks, and makes no system call.
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    /// Milliseconds as C has them; a negative number is without end.
    pub fn of(millis: i64) -> Patience {
        match u64::try_from(millis) {
            Err(_) => Patience::Endless,
            Ok(0) => Patience::None,
            Ok(millis) => {
                let until = Instant::now().checked_add(Duration::from_millis(millis));
                until.map_or(Patience::Endless, Patience::Until)
            }
        }
    }
}

impl GroupObject {
    /// Begins an operation that moves `bytes` bytes of the buffer.
    ///
    /// # Errors
    /// Those of the library, and of handles that are in use or closed.
    pub fn begin(
        &self,
        (handle, bytes): (Handle<BufferObject>, usize),
        (tag, offset): (u64, u64),
        operation: impl FnOnce(&Group, Buffer, u64) -> Result<(), NotBegun>,
    ) -> Result<(), Failure> {
        let object = handle.get()?;
        let buffer = object.lend(bytes)?;
        let flight = Flight { tag, handle: handle.number(), buffer: Arc::clone(&object), offset };
        let mut flying = self.flying.lock();
        if flying.is_closed {
            object.give_back(buffer);
            return Err((&HANDLE).into());
        }
        let key = flying.all.insert(flight);
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(flying);
        operation(&self.group, buffer, key as u64).map_err(|NotBegun { buffer, error }| {
            drop(self.flying.lock().all.remove(key));
            self.count.fetch_sub(1, Ordering::Relaxed);
            object.give_back(buffer);
            error.into()
        })
    }

    /// Operations whose completions the program does not have.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends it, if it has no operations and no thread waits for some.
    ///
    /// # Errors
    /// `IN_USE`.
    pub fn close(&self) -> Result<(), Failure> {
        let ready = self.ready()?;
        let mut flying = self.flying.lock();
        if !ready.is_empty() || !flying.all.is_empty() {
            return Err(IN_USE.because("the group has operations whose completions nothing took"));
        }
        flying.is_closed = true;
        Ok(())
    }

    fn ready(&self) -> Result<MutexGuard<'_, VecDeque<CompletionRecord>>, Failure> {
        self.ready.try_lock().ok_or_else(|| IN_USE.because("another thread waits for the group"))
    }

    /// Hands completions to `take`, `most` at most, as soon as there are `least`, or all. Returns
    /// how many, and whether they are as many as were waited for.
    ///
    /// # Errors
    /// `IN_USE`.
    pub fn wait(
        &self,
        least: usize,
        most: usize,
        patience: &Patience,
        mut take: impl FnMut(usize, CompletionRecord),
    ) -> Result<(usize, bool), Failure> {
        let mut ready = self.ready()?;
        let least = least.min(most);
        if ready.len() < least.max(1) {
            ready.extend(self.group.poll().into_iter().map(|done| self.complete(done)));
        }
        while ready.len() < least && !self.group.is_empty() {
            let within = match patience {
                Patience::None => break,
                Patience::Endless => None,
                Patience::Until(until) => {
                    let rest = until.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        break;
                    }
                    Some(rest)
                }
            };
            let done = self.group.wait(least - ready.len(), within);
            ready.extend(done.into_iter().map(|done| self.complete(done)));
        }
        let count = ready.len().min(most);
        let enough = count >= least || self.group.is_empty();
        self.count.fetch_sub(count, Ordering::Relaxed);
        ready.drain(..count).enumerate().for_each(|(at, done)| take(at, done));
        Ok((count, enough))
    }

    fn complete(&self, completion: Completion) -> CompletionRecord {
        let Completion { tag: key, buffer, result } = completion;
        let flight = self.flying.lock().all.remove(key as usize);
        flight.buffer.give_back(buffer);
        let record = CompletionRecord {
            tag: flight.tag,
            buffer: Handle::of(flight.handle),
            error: 0,
            reserved: 0,
            bytes: 0,
            offset: flight.offset,
            size: 0,
            version: 0,
        };
        match result {
            Err(error) => CompletionRecord { error: number(error), ..record },
            Ok(moved) => CompletionRecord {
                bytes: moved.bytes as u64,
                offset: moved.offset.unwrap_or(flight.offset),
                size: moved.size,
                version: moved.version.0,
                ..record
            },
        }
    }
}

fn number(error: DirectError) -> i32 {
    Failure::from(error).number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_for_which_a_thread_waits_is_in_use_and_countable() {
        let group = GroupObject::default();
        let waits = group.ready.lock();
        assert_eq!(group.len(), 0);
        let taken = group.wait(0, 1, &Patience::None, |_, _| panic!("there is none"));
        assert_eq!(taken.unwrap_err().number, IN_USE.number);
        assert_eq!(group.close().unwrap_err().number, IN_USE.number);
        drop(waits);
        assert!(group.wait(1, 1, &Patience::Endless, |_, _| {}).unwrap().1);
        group.close().unwrap();
    }
}
