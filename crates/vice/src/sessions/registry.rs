//! Attaching, resuming and authenticating sessions, and their durable records.
//!
//! Anonymous sessions (`lease/leases/anonymous.rs`): the server stores nothing of them on disk
//! before an authenticated user calls through them. So a host that can reach the server causes no
//! sync by attaching, and leaves no record: a restart ends these sessions, and waits for none of
//! them (CB-5). Their changes, where the rules allow an anonymous caller any, are made once as all
//! others (EO-1) while the session lasts; a client whose session ended with the server process
//! learns that it ended, but not the result of its last request.

use std::sync::Arc;

use bytes::Bytes;
use lease::{EndReason, KnownSession, Leases, Output, Restart};
use parking_lot::Mutex;
use store::{SessionRecord, StoreError};
use types::limits::CLIENT_KEPT_DAYS;
use types::{BootVerifier, ClientId, Fault, ReplyAddress, ServerId, SessionId, Time, Timestamp};

use super::{Coherence, Requests};
use crate::ViceConfig;
use crate::volumes::Partitions;

/// The marks in a session's durable record, a byte each, 1 or 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SessionMarks {
    /// It may have had delegations.
    delegating: bool,
    /// It may have had opens that exclude others.
    excluding: bool,
}

impl SessionMarks {
    fn of_record(extra: &[u8]) -> SessionMarks {
        let is_set = |at: usize| extra.get(at) == Some(&1);
        SessionMarks { delegating: is_set(0), excluding: is_set(1) }
    }

    fn in_record(self) -> Bytes {
        Bytes::copy_from_slice(&[u8::from(self.delegating), u8::from(self.excluding)])
    }
}

/// Records that are checked while attaches wait.
const CLIENTS_AT_ONCE: usize = 256;

/// Answer to a client that attaches or resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Number of its session.
    pub session: SessionId,
    /// The server restarted since: promises are void; the client must reclaim locks and holds, then
    /// send `ReclaimDone`.
    pub reclaim: bool,
    /// Unstable writes with another verifier must be sent again.
    pub verifier: BootVerifier,
    /// Slots that the session may use.
    pub slots: u32,
    /// Slot and request number of each slot with a remembered reply.
    pub recorded: Vec<(u32, u64)>,
}

/// See the head of the file.
pub(crate) struct Registry {
    partitions: Partitions,
    coherence: Arc<Coherence>,
    requests: Arc<Requests>,
    slots_max: u32,
    /// Held while a session of a client is added or becomes authenticated.
    attaching: Mutex<()>,
    /// Held while a session's record gets a mark.
    marking: Mutex<()>,
}

/// The number below those of this server's sessions. Sessions of other servers have other numbers:
/// what takes over keeps the replies of several former servers by client and session alone.
fn before_sessions_of(me: ServerId) -> SessionId {
    let half = (me.0 >> 64) as u64 ^ me.0 as u64;
    SessionId((half >> 32 ^ half) << 32 & (u64::MAX >> 1))
}

impl Registry {
    /// Reads the records of the earlier server instance. If there are sessions, grace begins.
    ///
    /// # Errors
    /// Errors of reading the records.
    pub fn open(
        partitions: Partitions,
        config: &ViceConfig,
        me: Option<ServerId>,
        now: Time,
    ) -> Result<Registry, StoreError> {
        let requests =
            Requests::new(config.slots_max, config.waiting_calls_max, config.waiting_bytes_max);
        let mut known = Vec::new();
        for record in partitions.home().sessions().list()? {
            let session = record.session;
            requests.add_session(session, record.client);
            for reply in partitions.replies(session)? {
                let origin = ReplyAddress { session, slot: reply.slot, request: reply.request };
                requests.add_record(origin, reply.reply);
            }
            let marks = SessionMarks::of_record(&record.extra);
            known.push(KnownSession {
                session,
                client: record.client,
                incarnation: record.incarnation,
                delegated: marks.delegating,
                excluding: marks.excluding,
            });
        }
        let is_known = |session| known.iter().any(|one: &KnownSession| one.session == session);
        for partition in partitions.iter() {
            partition.sessions().forget_replies(&is_known)?;
        }
        // Every record was synced before its session was used, so all are known.
        let restart = Restart { known, complete: true };
        if let Some(me) = me {
            partitions.use_up_session(before_sessions_of(me))?;
        }
        let last = partitions.allocate_session()?;
        let leases = Leases::new(config.lease, Some(&restart), SessionId(last.0 + 1), now);
        Ok(Registry {
            partitions,
            coherence: Arc::new(Coherence::new(leases)),
            requests: Arc::new(requests),
            slots_max: config.slots_max,
            attaching: Mutex::new(()),
            marking: Mutex::new(()),
        })
    }

    /// The leases of its sessions.
    pub fn coherence(&self) -> &Arc<Coherence> {
        &self.coherence
    }

    /// The requests of its sessions.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// Slots of an authenticated session.
    pub fn slots_max(&self) -> u32 {
        self.slots_max
    }

    /// The client of a session, also of one that ended lately and had changes.
    pub fn client_of(&self, session: SessionId) -> Option<ClientId> {
        self.requests.client_of(session)
    }

    /// Whether a panic left the tables of sessions and promises half changed.
    pub fn is_broken(&self) -> bool {
        self.coherence.is_broken() || self.requests.is_broken()
    }

    /// Creates a session. Sessions of earlier incarnations of the client end (EO-2). Syncs the home
    /// partition.
    ///
    /// # Errors
    /// `Expired` for an incarnation lower than one that was seen; `Medium` if the session cannot be
    /// recorded.
    pub fn attach(
        &self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        events: &mut Vec<Output>,
    ) -> Result<Attached, Fault> {
        let _one_at_a_time = self.attaching.lock();
        if self.is_outdated(client, incarnation)? {
            return Err(Fault::Expired);
        }
        let mut leases = self.coherence.leases();
        let attached = leases.attach(now, client, incarnation, events);
        let session = attached.map_err(|_| Fault::Expired)?;
        self.requests.add_session(session, client);
        drop(leases);
        if let Err(error) = self.record(session, client, incarnation) {
            self.coherence.leases().end(now, session, EndReason::Detached, events);
            return Err(error.into());
        }
        Ok(self.attached(session, false))
    }

    /// Creates an anonymous session; see the head of the file. [`Registry::prove`] makes it
    /// authenticated.
    ///
    /// # Errors
    /// As [`Registry::attach`].
    pub fn attach_anonymous(
        &self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        events: &mut Vec<Output>,
    ) -> Result<Attached, Fault> {
        let _one_at_a_time = self.attaching.lock();
        if self.is_outdated(client, incarnation)? {
            return Err(Fault::Expired);
        }
        let mut leases = self.coherence.leases();
        let attached = leases.attach_anonymous(now, client, incarnation, events);
        let session = attached.map_err(|_| Fault::Expired)?;
        self.requests.add_session(session, client);
        drop(leases);
        // Replies name it: no other session may ever have the number. One sync in 64 attaches.
        if let Err(error) = self.partitions.use_up_session(session) {
            self.coherence.leases().end(now, session, EndReason::Detached, events);
            return Err(error.into());
        }
        Ok(self.attached(session, false))
    }

    /// An authenticated user, or one of a trusted host, calls through the session: it becomes
    /// authenticated and is recorded. Syncs the home partition the first time.
    ///
    /// # Errors
    /// `Expired` if the session is over, also because a later incarnation of its client was
    /// authenticated before (EO-2); `Medium` if it cannot be recorded.
    pub fn prove(
        &self,
        now: Time,
        session: SessionId,
        events: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        let _one_at_a_time = self.attaching.lock();
        let leases = self.coherence.leases();
        let (client, incarnation) = leases.sessions().owner(session).ok_or(Fault::Expired)?;
        if !leases.sessions().is_anonymous(session) {
            return Ok(());
        }
        drop(leases);
        if self.is_outdated(client, incarnation)? {
            self.coherence.leases().end(now, session, EndReason::Detached, events);
            return Err(Fault::Expired);
        }
        self.record(session, client, incarnation)?;
        self.coherence.leases().prove(now, session, events).map_err(|_| Fault::Expired)
    }

    /// Moves the session to its client's new connection. Breaks that it has not acknowledged are
    /// sent again.
    ///
    /// # Errors
    /// `Expired`: there is no such session of this client and incarnation (any more).
    pub fn resume(
        &self,
        now: Time,
        session: SessionId,
        client: ClientId,
        incarnation: u64,
        events: &mut Vec<Output>,
    ) -> Result<Attached, Fault> {
        let mut leases = self.coherence.leases();
        let resumed = leases.resume(now, session, client, incarnation, events);
        assert!(
            resumed.is_err() || self.requests.has_session(session),
            "EO-1: {session:?} goes on without its replies"
        );
        drop(leases);
        Ok(self.attached(session, resumed.map_err(|_| Fault::Expired)?.reclaim))
    }

    /// Whether a later incarnation of the client was seen (EO-2).
    fn is_outdated(&self, client: ClientId, incarnation: u64) -> Result<bool, Fault> {
        let newest = self.partitions.home().sessions().incarnation(client)?;
        Ok(newest.is_some_and(|newest| newest > incarnation))
    }

    /// Records a session. The number is used up on all partitions before the client gets it, and
    /// the record is stable before it is needed.
    fn record(
        &self,
        session: SessionId,
        client: ClientId,
        incarnation: u64,
    ) -> Result<(), StoreError> {
        debug_assert!(
            !self.is_outdated(client, incarnation).unwrap_or(false),
            "EO-2: an earlier incarnation of {client:?} is recorded"
        );
        let home = self.partitions.home();
        home.sessions().put_incarnation(client, incarnation)?;
        home.sessions().put_session(&SessionRecord {
            session,
            client,
            incarnation,
            extra: Bytes::new(),
        })?;
        self.partitions.use_up_session(session)?;
        home.sync()
    }

    fn attached(&self, session: SessionId, reclaim: bool) -> Attached {
        let recorded = self.requests.recorded(session);
        let verifier = self.partitions.boot_verifier();
        Attached { session, reclaim, verifier, slots: self.slots_max, recorded }
    }

    /// Records before a session's first delegation that it may have delegations: after a restart
    /// only the session knows what it has changed.
    ///
    /// # Errors
    /// `Expired` if the session is over; `Medium`.
    pub fn mark_delegating(&self, session: SessionId) -> Result<(), Fault> {
        self.mark(session, SessionMarks { delegating: true, excluding: false })
    }

    /// Records before a session's first open that excludes others that it may have such opens:
    /// after a restart they wait until it has claimed them (SH-5).
    ///
    /// # Errors
    /// As [`Registry::mark_delegating`].
    pub fn mark_excluding(&self, session: SessionId) -> Result<(), Fault> {
        self.mark(session, SessionMarks { delegating: false, excluding: true })
    }

    /// Adds these marks to the record of the session.
    fn mark(&self, session: SessionId, new: SessionMarks) -> Result<(), Fault> {
        let _one_at_a_time = self.marking.lock();
        let leases = self.coherence.leases();
        let sessions = leases.sessions();
        let had = SessionMarks {
            delegating: sessions.is_marked(session),
            excluding: sessions.may_exclude(session),
        };
        let marks = SessionMarks {
            delegating: had.delegating || new.delegating,
            excluding: had.excluding || new.excluding,
        };
        if marks == had {
            return Ok(());
        }
        let (client, incarnation) = sessions.owner(session).ok_or(Fault::Expired)?;
        drop(leases);
        let extra = marks.in_record();
        let home = self.partitions.home();
        home.sessions().put_session(&SessionRecord { session, client, incarnation, extra })?;
        home.sync()?;
        let mut leases = self.coherence.leases();
        if marks.delegating {
            leases.sessions_mut().mark(session);
        }
        if marks.excluding {
            leases.sessions_mut().note_excluding(session);
        }
        Ok(())
    }

    /// The session is over: removes its record and replies.
    pub fn remove_session(&self, session: SessionId) {
        self.requests.remove_session(session);
        self.coherence.remove_session(session);
        if let Err(error) = self.partitions.remove_session(session) {
            // The record remains, so a later start waits for the session in grace.
            tracing::warn!(?session, %error, "the record of an ended session cannot be removed");
        }
    }

    /// Removes the incarnations of clients that have been away for [`CLIENT_KEPT_DAYS`]; `wall` is
    /// today. Returns how many it removed.
    ///
    /// # Errors
    /// `Medium`, `Damaged`.
    pub fn forget_clients(&self, wall: Timestamp) -> Result<usize, Fault> {
        let day = u64::try_from(wall.secs / 86_400).unwrap_or(0);
        let (mut after, mut forgotten) = (None, 0);
        loop {
            // Attaches wait from the check to the removal, but never for more than a few records.
            let _one_at_a_time = self.attaching.lock();
            let is_here = |client| self.coherence.leases().sessions().has_client(client);
            let (some, next) = self.partitions.home().sessions().forget_clients(
                after,
                CLIENTS_AT_ONCE,
                (day, CLIENT_KEPT_DAYS),
                &is_here,
            )?;
            forgotten += some;
            after = next;
            if after.is_none() {
                return Ok(forgotten);
            }
        }
    }
}
