//! Calls of principals that are not in the cache, where another server has the database.
//!
//! A question to that server takes a round trip, or seconds while it does not answer, and a
//! request's thread serves many other clients. So a call in such a thread asks no other server: the
//! first look-up that misses the cache ends it, before it has changed anything, and the driver gets
//! the call to execute it again in a thread that may wait ([`LookupHook`]). That fills the
//! cache, so the next request of that principal needs no such thread.

use std::cell::Cell;

use types::{Call, Caller, ReplyAddress, Time, Timestamp};

thread_local! {
    static ASKING: Cell<Asking> = const { Cell::new(Asking::Allowed) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    Allowed,
    /// Only the cache is read.
    Forbidden,
    /// Only the cache is read, and a look-up missed it.
    Missed,
}

/// A call that waits for a thread that may ask the cell's database.
#[derive(Debug)]
pub struct Lookup {
    pub(crate) now: Time,
    pub(crate) wall: Timestamp,
    pub(crate) caller: Caller,
    pub(crate) origin: ReplyAddress,
    pub(crate) call: Call,
}

impl Lookup {
    /// Address of the request's reply.
    pub fn origin(&self) -> ReplyAddress {
        self.origin
    }
}

/// Passes a call to a thread that may wait. `false`: too many wait already.
pub type LookupHook = Box<dyn Fn(Lookup) -> bool + Send + Sync>;

/// This thread asks no other server until this is dropped.
pub(crate) struct MemoryOnly;

impl MemoryOnly {
    fn begin() -> MemoryOnly {
        ASKING.set(Asking::Forbidden);
        MemoryOnly
    }

    /// Whether a look-up missed the cache.
    pub(crate) fn missed(&self) -> bool {
        ASKING.get() == Asking::Missed
    }
}

impl Drop for MemoryOnly {
    fn drop(&mut self) {
        ASKING.set(Asking::Allowed);
    }
}

/// Whether this thread may ask another server now; records a refusal as a miss.
pub(crate) fn may_ask() -> bool {
    let asking = ASKING.get();
    if asking != Asking::Allowed {
        ASKING.set(Asking::Missed);
    }
    asking == Asking::Allowed
}

/// The way of calls to threads that may wait for another server; without a hook calls wait in their
/// own thread.
pub(crate) struct LookupThreads(Option<LookupHook>);

impl LookupThreads {
    pub fn new(hook: Option<LookupHook>) -> LookupThreads {
        LookupThreads(hook)
    }

    /// Restricts a thread of requests to the cache. `None`: this call may ask, because there is no
    /// hook, or because it runs in a thread for such calls anyway.
    pub fn begin_memory_only(&self, call: &Call) -> Option<MemoryOnly> {
        let asks_anyway = matches!(
            call,
            Call::Cell(_) | Call::Pts { .. } | Call::Auth { .. } | Call::Guard { .. }
        );
        let may_wait = asks_anyway || self.0.is_none() || LOOKING_UP.get();
        (!may_wait).then(MemoryOnly::begin)
    }

    /// Passes the call to the hook; false: too many wait.
    pub fn look_up_later(
        &self,
        (now, wall): (Time, Timestamp),
        caller: &Caller,
        origin: ReplyAddress,
        call: &Call,
    ) -> bool {
        let lookup = Lookup { now, wall, caller: caller.clone(), origin, call: call.clone() };
        self.0.as_ref().is_some_and(|hook| hook(lookup))
    }
}

/// Marks the thread until it is dropped, also by a panic.
pub(crate) struct LookingUp;

impl LookingUp {
    pub fn begin() -> LookingUp {
        LOOKING_UP.set(true);
        LookingUp
    }
}

impl Drop for LookingUp {
    fn drop(&mut self) {
        LOOKING_UP.set(false);
    }
}

thread_local! {
    /// The thread executes a call from the hook.
    static LOOKING_UP: Cell<bool> = const { Cell::new(false) };
}
