//! The file service as its driver sees it.

use types::{Answer, BootVerifier, BreakId, Call, Caller, ClientId, Fault, Fid, Origin, SessionId, Time, Timestamp};

use crate::{Effect, ViceConfig};

/// What a client learns when it attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its session: the earlier one of the same incarnation if that still lives, otherwise a new one.
    pub session: SessionId,
    /// The session existed: its slots remember what was done. Locks and holds live on too, unless `reclaim`.
    pub resumed: bool,
    /// The server restarted since: promises are void; locks and holds must be claimed, then `ReclaimDone` sent.
    pub reclaim: bool,
    /// Unstable writes that were answered with another verifier must be sent again.
    pub verifier: BootVerifier,
    /// Slots that the session may use.
    pub slots: u32,
}

/// The file service: every rule of access and of POSIX, promises, and exactly-once. Thread-safe; knows no sockets
/// and reads no clock.
pub struct Vice {
    config: ViceConfig,
}

impl Vice {
    /// Who answers [`Call::Scrub`]: given `start`, returns the report. The driver owns the thread that does the work.
    pub fn on_scrub(&self, hook: Box<dyn Fn(bool) -> String + Send + Sync>) {
        let _ = hook;
    }

    /// A client says hello. A new incarnation ends the session of the one before.
    ///
    /// # Errors
    /// `Expired` for an incarnation lower than one that was seen (EO-2); `Medium` if the session cannot be recorded.
    pub fn attach(
        &self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Effect>,
    ) -> Result<Attached, Fault> {
        let _ = (now, client, incarnation, out, self.config);
        Err(Fault::Unsupported)
    }

    /// The session was heard of; its lease runs from here. False: there is no such session (any more).
    pub fn renew(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) -> bool {
        let _ = (now, session, out);
        false
    }

    /// The client leaves for good: its locks, holds and promises end at once.
    pub fn detach(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let _ = (now, session, out);
    }

    /// The client's process is known to be dead (its host said so), so nobody needs to wait for its lease.
    pub fn peer_died(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let _ = (now, session, out);
    }

    /// The session acknowledges breaks. `held`: files among them that it has open.
    pub fn ack(&self, now: Time, session: SessionId, id: BreakId, held: &[Fid], out: &mut Vec<Effect>) {
        let _ = (now, session, id, held, out);
    }

    /// The client takes a waiting request back; it is answered with `Cancelled` unless it is done already.
    pub fn cancel(&self, now: Time, origin: Origin, out: &mut Vec<Effect>) {
        let _ = (now, origin, out);
    }

    /// Does what is due; returns when to call again at the latest.
    pub fn tick(&self, now: Time, out: &mut Vec<Effect>) -> Time {
        let _ = (now, out);
        Time::NEVER
    }

    /// Executes a call. The reply comes as an effect, now or after acknowledgements, a lock or the end of grace.
    /// `now` is the steady clock, `wall` the time that files get.
    pub fn perform(
        &self,
        now: Time,
        wall: Timestamp,
        caller: &Caller,
        origin: Origin,
        call: Call,
        out: &mut Vec<Effect>,
    ) {
        let _ = (now, wall, caller, call);
        out.push(Effect::Reply { origin, result: Err::<Answer, _>(Fault::Unsupported), body: None });
    }

    /// Whether the call may wait for the disk, so that the driver runs it on its pool.
    pub fn may_block(&self, call: &Call) -> bool {
        match call {
            Call::Commit { .. }
            | Call::CommitVolume { .. }
            | Call::Allocate { .. }
            | Call::ReadSums { .. }
            | Call::Scrub { .. } => true,
            Call::Write { stable, data, .. } => *stable || data.len() > BULK_BYTES,
            Call::Read { length, .. } => *length as usize > BULK_BYTES,
            Call::SetStatus { change, .. } => change.size.is_some(),
            _ => false,
        }
    }
}

/// Up to here a read or write is one copy from or into the page cache.
const BULK_BYTES: usize = 64 << 10;
