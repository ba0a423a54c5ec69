//! The slots of a session in this process whose callers wait in their own threads.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex};
use types::{ReplyAddress, SessionId};

/// See the head of the file. `T`: the result of a call; `E`: why the session is over.
pub(crate) struct CallSlots<T, E> {
    session: SessionId,
    table: Mutex<Table<T, E>>,
    changed: Condvar,
}

struct Table<T, E> {
    free: Vec<u32>,
    /// The last request of each slot.
    requests: Vec<u64>,
    /// Calls in progress; their results.
    calls: HashMap<u32, Option<T>>,
    over: Option<E>,
}

impl<T, E: Clone> CallSlots<T, E> {
    pub fn new(session: SessionId, slots: u32) -> Self {
        let (requests, calls) = (vec![0; slots as usize], HashMap::new());
        let table = Table { free: (0..slots).rev().collect(), requests, calls, over: None };
        CallSlots { session, table: Mutex::new(table), changed: Condvar::new() }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The address of a new call, which must be followed by [`CallSlots::wait`]. Waits for a slot.
    ///
    /// # Errors
    /// The session is over.
    pub fn begin(&self) -> Result<ReplyAddress, E> {
        let mut table = self.table.lock();
        loop {
            if let Some(why) = &table.over {
                return Err(why.clone());
            }
            if let Some(slot) = table.free.pop() {
                table.requests[slot as usize] += 1;
                let request = table.requests[slot as usize];
                table.calls.insert(slot, None);
                return Ok(ReplyAddress { session: self.session, slot, request });
            }
            self.changed.wait(&mut table);
        }
    }

    /// The result of a call has come.
    pub fn finish(&self, origin: ReplyAddress, result: T) {
        if let Some(call) = self.table.lock().calls.get_mut(&origin.slot) {
            *call = Some(result);
            self.changed.notify_all();
        }
    }

    /// Waits for the result of a call.
    ///
    /// # Errors
    /// The session ended before.
    pub fn wait(&self, origin: ReplyAddress) -> Result<T, E> {
        let mut table = self.table.lock();
        loop {
            if let Some(result) = table.calls.get_mut(&origin.slot).and_then(Option::take) {
                table.calls.remove(&origin.slot);
                table.free.push(origin.slot);
                self.changed.notify_all();
                return Ok(result);
            }
            if let Some(why) = &table.over {
                return Err(why.clone());
            }
            self.changed.wait(&mut table);
        }
    }

    /// The session is over, for the first reason that is given.
    pub fn end(&self, why: E) {
        self.table.lock().over.get_or_insert(why);
        self.changed.notify_all();
    }
}
