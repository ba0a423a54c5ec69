//! Calls of principals that this server does not remember, where another server has the database.
//!
//! To ask that server takes a round trip, or seconds while it does not answer, and a request's
//! thread serves many other clients. So a call that is executed in such a thread asks nobody: the
//! first look-up that memory cannot answer ends it, before it has changed anything, and the driver
//! is given the call to execute it anew in a thread that may wait ([`Vice::on_lookups`]). There
//! what is learnt is remembered, so the next request of that principal needs no such thread.

use std::cell::Cell;

use types::{Call, Caller, ReplyAddress, Time, Timestamp};

use crate::{Effect, Vice};

thread_local! {
    static ASKING: Cell<Asking> = const { Cell::new(Asking::Allowed) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asking {
    Allowed,
    /// Only memory is looked at.
    Forbidden,
    /// The same, and memory did not have it.
    Missed,
}

/// A call that waits for a thread that may ask the cell's database.
#[derive(Debug)]
pub struct Lookup {
    now: Time,
    wall: Timestamp,
    caller: Caller,
    origin: ReplyAddress,
    call: Call,
}

impl Lookup {
    /// The request.
    pub fn origin(&self) -> ReplyAddress {
        self.origin
    }
}

/// Takes a call to a thread that may wait. `false`: too many wait already.
pub type LookupHook = Box<dyn Fn(Lookup) -> bool + Send + Sync>;

/// Until it is dropped this thread asks no other server.
pub(crate) struct MemoryOnly;

impl MemoryOnly {
    fn begin() -> MemoryOnly {
        ASKING.set(Asking::Forbidden);
        MemoryOnly
    }

    /// Whether something was not in memory.
    pub(crate) fn missed(&self) -> bool {
        ASKING.get() == Asking::Missed
    }
}

impl Drop for MemoryOnly {
    fn drop(&mut self) {
        ASKING.set(Asking::Allowed);
    }
}

/// Whether this thread may ask another server now; that it wanted to is remembered.
pub(crate) fn may_ask() -> bool {
    let asking = ASKING.get();
    if asking != Asking::Allowed {
        ASKING.set(Asking::Missed);
    }
    asking == Asking::Allowed
}

impl Vice {
    /// Calls that need the cell's database go there; without it they wait in the thread that they
    /// came in. Said once, before the first call.
    pub fn on_lookups(&self, hook: LookupHook) {
        // A second one is the same server's.
        let _ = self.lookups.set(hook);
    }

    /// In a thread of requests: memory only. Nothing: this call may ask, because nobody else would,
    /// or because it is executed where calls that ask are executed anyway.
    pub(crate) fn begin_memory_only(&self, call: &Call) -> Option<MemoryOnly> {
        let asks_anyway = matches!(
            call,
            Call::Cell(_) | Call::Pts { .. } | Call::Auth { .. } | Call::Guard { .. }
        );
        let may_wait = asks_anyway || self.lookups.get().is_none() || LOOKING_UP.get();
        (!may_wait).then(MemoryOnly::begin)
    }

    /// Gives the call away; false: too many wait.
    pub(crate) fn look_up_later(
        &self,
        (now, wall): (Time, Timestamp),
        caller: &Caller,
        origin: ReplyAddress,
        call: &Call,
    ) -> bool {
        let lookup = Lookup { now, wall, caller: caller.clone(), origin, call: call.clone() };
        self.lookups.get().is_some_and(|hook| hook(lookup))
    }

    /// Executes a call that was given away, in a thread that may wait; `now`: what time it has
    /// become.
    pub fn look_up(&self, now: Time, lookup: Lookup, out: &mut Vec<Effect>) {
        let Lookup { now: came, wall, caller, origin, call } = lookup;
        let wall = wall.later(now.since(came));
        let mut events = Vec::new();
        let looking = LookingUp::begin();
        self.run(now, wall, &caller, origin, &call, &mut events, out);
        drop(looking);
        self.settle(now, events, out);
    }
}

/// Until it is dropped, also by a panic.
struct LookingUp;

impl LookingUp {
    fn begin() -> LookingUp {
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
    /// The thread executes a call that was given away.
    static LOOKING_UP: Cell<bool> = const { Cell::new(false) };
}
