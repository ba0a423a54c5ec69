//! The file service, as its driver uses it.
//!
//! The life of a call. *Begin*: its slot shows whether it is new, running, or done. A change waits
//! until grace is over. *Execute* (`calls/`): checks, reads, and for a change one commit with its
//! reply record inside (`change.rs`). A change then *breaks* the promises that it made stale; if
//! there are any, the reply waits for the ticket. *Finish* (`completion.rs`) stores the reply in
//! the slot and sends it.
//!
//! A call on files that another session covers leaves nothing behind: it is *parked*
//! (`waiting_calls.rs`), and executed from its beginning when the delegation is back.
//!
//! Order of locks: `moves` of a volume, stripes of vnodes, `growth` of a volume, `marking`, core.
//! The core is never held over I/O.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use celldb::CellDb;
use lease::{BreakTicket, KnownSession, Leases, Output, RenewalOutcome, Restart};
use parking_lot::Mutex;
use store::{Partition, Rewrapped, SessionRecord, StoreError};
use types::{
    Answer, BootVerifier, BreakId, BreakItem, BreakReason, Call, CallBlocking, CallEffect, Caller,
    ClientId, Fault, Fid, PartitionNo, ReplyAddress, ServerInfo, SessionId, Time, Timestamp,
    VnodeSlots, VolumeId,
};

use crate::access::{CallerView, Principals};
use crate::audit_events::{AuditLog, Refusals};
use crate::calls::auth::Logins;
use crate::calls::{Blanks, CallCounters, Loans};
use crate::fences::FenceEpoch;
use crate::identity_cache::IdentityCache;
use crate::lock_stripes::Stripes;
use crate::open_rights::OpenRights;
use crate::principal_lookups::LookupHook;
use crate::reply_cache::{Begin, SlotTable};
use crate::unpoisoned::Guarded;
use crate::volumes::{Moves, ViceVolume, VolumesInUse};
use crate::waiting_calls::{CallQueue, Parked, Waiting, Waits};
use crate::{Effect, Partitions, TransferAgent, ViceConfig};

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

/// Answers [`Call::Scrub`].
pub(crate) type ScrubHook = Box<dyn Fn(bool) -> String + Send + Sync>;

/// The file service: all rules of access and of POSIX, promises, and exactly-once. Thread-safe; has
/// no sockets and reads no clock.
pub struct Vice {
    pub(crate) config: ViceConfig,
    /// Hook for calls that need the cell's database.
    pub(crate) lookups: OnceLock<LookupHook>,
    pub(crate) partitions: Partitions,
    pub(crate) stripes: Stripes,
    pub(crate) core: Guarded<ServiceTables>,
    pub(crate) counters: CallCounters,
    pub(crate) scrub: Mutex<Option<ScrubHook>>,
    pub(crate) volumes: VolumesInUse,
    pub(crate) principals: OnceLock<Arc<dyn Principals>>,
    pub(crate) cell: OnceLock<Arc<dyn CellDb>>,
    pub(crate) expects_cell: AtomicBool,
    pub(crate) me: OnceLock<ServerInfo>,
    pub(crate) logins: OnceLock<Logins>,
    pub(crate) transfers: OnceLock<Arc<dyn TransferAgent>>,
    pub(crate) moves: Mutex<Moves>,
    /// Counts freezes that ended.
    pub(crate) freezes_ended: AtomicU64,
    /// Held while a volume gets its name and number.
    pub(crate) naming: Mutex<()>,
    pub(crate) identities: IdentityCache,
    pub(crate) ruled: FenceEpoch,
    pub(crate) witness: OnceLock<Arc<dyn AuditLog>>,
    pub(crate) refusals: Refusals,
    pub(crate) attaching: Mutex<()>,
    pub(crate) marking: Mutex<()>,
}

/// The tables in memory that calls share.
pub(crate) struct ServiceTables {
    pub leases: Leases,
    pub slots: SlotTable,
    /// Calls that wait for the grace period.
    pub queue: CallQueue<Waiting>,
    /// Calls that wait for delegations of other sessions.
    pub parked: CallQueue<Parked>,
    /// Slots for new files that sessions may assign themselves.
    pub given: HashMap<(SessionId, VolumeId), Vec<VnodeSlots>>,
    /// Volumes in which some session knows rights.
    pub rights_shown: HashSet<VolumeId>,
    /// Ticket of the break of these rights, after principals changed elsewhere.
    pub rights_ticket: Option<BreakTicket>,
    /// Changes that are done but not acknowledged.
    pub pending: HashMap<BreakTicket, PendingChange>,
    /// How many of them removed the last name of a file.
    pub removing: HashMap<Fid, u32>,
    /// Sessions whose kernels write into bodies.
    pub loans: Loans,
    /// Preallocated bodies of sessions.
    pub blanks: Blanks,
    /// Callers that wait for locks, and whether a fence came between.
    pub lock_waits: HashMap<ReplyAddress, (Caller, bool)>,
    pub opened: OpenRights,
}

impl ServiceTables {
    fn enqueue(&mut self, waiting: Waiting) -> Result<(), Fault> {
        let of_nobody = self.leases.is_anonymous(waiting.origin().session);
        self.queue.push(waiting, of_nobody)
    }

    /// Breaks the promises of rights, in all volumes.
    pub fn break_rights(&mut self, now: Time, events: &mut Vec<Output>) -> Option<BreakTicket> {
        self.leases.rights_changed();
        let item = |volume: VolumeId| BreakItem {
            fid: Fid::rights(volume),
            reason: BreakReason::Status,
            name: None,
        };
        let items: Vec<BreakItem> = self.rights_shown.drain().map(item).collect();
        // No session has number 0: all get the break.
        self.leases.break_promises(now, &items, SessionId(0), events)
    }
}

/// A change that waits for acknowledgements.
pub(crate) struct PendingChange {
    pub origin: ReplyAddress,
    pub answer: Answer,
    /// The file that lost its last name.
    pub removed: Option<Fid>,
}

/// Origin of a call, and its effects beside the answer.
pub(crate) struct CallContext<'a> {
    pub now: Time,
    pub wall: Timestamp,
    pub caller: &'a Caller,
    pub principals: &'a dyn Principals,
    pub origin: ReplyAddress,
    /// Handled once no lock is held.
    pub events: Vec<Output>,
    /// The session answered the change itself, with this slot for its new file (0: none).
    pub delegated: Option<u64>,
    /// Directories that other sessions cover: the call is repeated when one of them is back. A call
    /// that adds to it fails with `Busy`, which is then not sent.
    pub waits: Vec<Fid>,
    /// Number of changes of the volume's access model when the call began.
    pub models: u64,
    /// Number of changes of rights when the call began.
    pub rights_changes: u64,
    /// The call must be executed again: what it read is stale.
    pub again: bool,
}

impl<'a> CallContext<'a> {
    /// The caller, with the source of its principals.
    pub fn asker(&self) -> CallerView<'a> {
        CallerView { caller: self.caller, principals: self.principals }
    }
}

impl Vice {
    /// Serves partitions. If the first one records sessions of an earlier server instance, grace
    /// begins.
    ///
    /// # Errors
    /// Errors of reading the session records.
    pub fn open(
        partitions: impl Into<Partitions>,
        config: ViceConfig,
        now: Time,
    ) -> Result<Vice, StoreError> {
        let partitions = partitions.into();
        let records = partitions.home().sessions().list()?;
        let mut slots = SlotTable::new(config.slots_max);
        let mut known = Vec::with_capacity(records.len());
        for record in &records {
            slots.add_session(record.session);
            for reply in partitions.replies(record.session)? {
                let origin = ReplyAddress {
                    session: record.session,
                    slot: reply.slot,
                    request: reply.request,
                };
                slots.add_record(origin, reply.reply);
            }
            known.push(KnownSession {
                session: record.session,
                client: record.client,
                incarnation: record.incarnation,
                delegated: record.extra.first() == Some(&HAD_DELEGATIONS),
            });
        }
        let is_known = |session| known.iter().any(|one: &KnownSession| one.session == session);
        for partition in partitions.iter() {
            partition.sessions().forget_replies(&is_known)?;
        }
        let mut blanks = Blanks::default();
        for (no, partition) in partitions.numbered() {
            for blank in partition.blanks()? {
                if known.iter().any(|one| one.session == blank.session) {
                    blanks.add(no, blank);
                } else {
                    partition.remove_blank(blank)?;
                }
            }
        }
        // Every record was synced before its session was used, so all are known.
        let restart = Restart { known, complete: true };
        let last = partitions.allocate_session()?;
        let vice = Vice {
            stripes: Stripes::new(),
            core: Guarded::new(ServiceTables {
                leases: Leases::new(config.lease, Some(&restart), SessionId(last.0 + 1), now),
                slots,
                queue: CallQueue::new(config.waiting_calls_max, config.waiting_bytes_max),
                parked: CallQueue::new(config.waiting_calls_max, config.waiting_bytes_max),
                given: HashMap::new(),
                rights_shown: HashSet::new(),
                rights_ticket: None,
                pending: HashMap::new(),
                removing: HashMap::new(),
                loans: Loans::default(),
                blanks,
                lock_waits: HashMap::new(),
                opened: OpenRights::default(),
            }),
            counters: CallCounters::default(),
            scrub: Mutex::new(None),
            volumes: VolumesInUse::default(),
            principals: OnceLock::new(),
            cell: OnceLock::new(),
            expects_cell: AtomicBool::new(false),
            me: OnceLock::new(),
            logins: OnceLock::new(),
            transfers: OnceLock::new(),
            moves: Mutex::default(),
            freezes_ended: AtomicU64::new(0),
            naming: Mutex::new(()),
            identities: IdentityCache::default(),
            lookups: OnceLock::new(),
            ruled: FenceEpoch::default(),
            witness: OnceLock::new(),
            refusals: Refusals::default(),
            attaching: Mutex::new(()),
            marking: Mutex::new(()),
            config,
            partitions,
        };
        if vice.core.lock().leases.may_change() {
            vice.drop_orphans(now);
        }
        Ok(vice)
    }

    /// Sets a source of principals instead of the cell's database. Call it once, before the first
    /// request.
    pub fn set_principals(&self, principals: Arc<dyn Principals>) {
        // Only tests set it; a second one is ignored.
        let _ = self.principals.set(principals);
    }

    /// Sets the hook for [`Call::Scrub`]: given `start`, it returns the report. The driver has the
    /// thread that does the work.
    pub fn on_scrub(&self, hook: Box<dyn Fn(bool) -> String + Send + Sync>) {
        *self.scrub.lock() = Some(hook);
    }

    /// The first partition.
    pub fn partition(&self) -> &Partition {
        self.partitions.home()
    }

    /// All partitions of the server.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// Wraps the keys of all encrypted volumes again, with the present wrapping key.
    ///
    /// # Errors
    /// As `store::Partition::wrap_keys_anew`.
    pub fn wrap_keys_anew(&self) -> Result<Rewrapped, StoreError> {
        let mut all = Rewrapped::default();
        for partition in self.partitions.iter() {
            let Rewrapped { wrapped, left } = partition.wrap_keys_anew()?;
            all.wrapped += wrapped;
            all.left.extend(left);
        }
        Ok(all)
    }

    /// The partition of a delegated change: `None` for another call, and where there is no such
    /// volume.
    pub fn partition_of_delegated(&self, call: &Call) -> Option<(PartitionNo, Partition)> {
        let Call::Delegated { call, .. } = call else { return None };
        let id = call.changed_volume()?;
        let volume = self.volume(id).ok()?;
        Some((volume.no, volume.partition.clone()))
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
        out: &mut Vec<Effect>,
    ) -> Result<Attached, Fault> {
        let _one_at_a_time = self.attaching.lock();
        if self
            .partitions
            .home()
            .sessions()
            .incarnation(client)?
            .is_some_and(|newest| newest > incarnation)
        {
            return Err(Fault::Expired);
        }
        let mut events = Vec::new();
        let mut core = self.core.lock();
        let session = core
            .leases
            .attach(now, client, incarnation, &mut events)
            .map_err(|_| Fault::Expired)?;
        core.slots.add_session(session);
        drop(core);
        let recorded = self.record_session(session, client, incarnation);
        if recorded.is_err() {
            self.core.lock().leases.detach(now, session, &mut events);
        }
        self.carry_out(now, events, out);
        recorded?;
        Ok(self.attached(session, false))
    }

    /// Records a session. The number is used up on all partitions before the client gets it, and
    /// the record is stable before it is needed.
    pub(crate) fn record_session(
        &self,
        session: SessionId,
        client: ClientId,
        incarnation: u64,
    ) -> Result<(), StoreError> {
        let home = self.partitions.home();
        home.sessions().put_incarnation(client, incarnation)?;
        home.sessions().put_session(&SessionRecord {
            session,
            client,
            incarnation,
            extra: bytes::Bytes::new(),
        })?;
        self.partitions.use_up_session(session)?;
        home.sync()
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
        out: &mut Vec<Effect>,
    ) -> Result<Attached, Fault> {
        let mut events = Vec::new();
        let resumed =
            self.core.lock().leases.resume(now, session, client, incarnation, &mut events);
        self.carry_out(now, events, out);
        Ok(self.attached(session, resumed.map_err(|_| Fault::Expired)?.reclaim))
    }

    pub(crate) fn attached(&self, session: SessionId, reclaim: bool) -> Attached {
        let recorded = self.core.lock().slots.recorded(session);
        let verifier = self.partitions.boot_verifier();
        Attached { session, reclaim, verifier, slots: self.config.slots_max, recorded }
    }

    /// Renews the session's lease after a message. False: not renewed, because the session is over,
    /// or has left a break unacknowledged for too long.
    pub fn renew(&self, now: Time, session: SessionId, _out: &mut Vec<Effect>) -> bool {
        self.core.lock().leases.renew(now, session) == RenewalOutcome::Renewed
    }

    /// Ends the session of a client that leaves: its locks, holds and promises end at once.
    pub fn detach(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        self.core.lock().leases.detach(now, session, &mut events);
        self.carry_out(now, events, out);
    }

    /// Ends the session of a client whose process is known to be dead (its host reported it),
    /// without waiting for its lease.
    pub fn peer_died(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        self.core.lock().leases.peer_died(now, session, &mut events);
        self.carry_out(now, events, out);
    }

    /// Handles the acknowledgement of a break. `held`: files among its items that are open.
    pub fn ack(
        &self,
        now: Time,
        session: SessionId,
        id: BreakId,
        held: &[Fid],
        out: &mut Vec<Effect>,
    ) {
        let mut events = Vec::new();
        let mut core = self.core.lock();
        for fid in core.leases.items_of(session, id) {
            if !held.contains(&fid) && !core.leases.holds(session, fid) {
                core.opened.forget(session, fid);
            }
        }
        core.leases.ack(now, session, id, held, &mut events);
        drop(core);
        self.carry_out(now, events, out);
    }

    /// Cancels a waiting request of the client; it is answered with `Cancelled` unless it is done
    /// already.
    pub fn cancel(&self, now: Time, origin: ReplyAddress, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        let mut core = self.core.lock();
        core.leases.cancel(origin, &mut events);
        let waited = core.queue.cancel(origin) || core.parked.cancel(origin);
        drop(core);
        if waited {
            self.finish(origin, true, Err(Fault::Cancelled), None, out);
        }
        self.carry_out(now, events, out);
    }

    /// Does the periodic work; returns when to call it again at the latest.
    pub fn tick(&self, now: Time, out: &mut Vec<Effect>) -> Time {
        let mut events = Vec::new();
        self.core.lock().leases.tick(now, &mut events);
        self.check_room(now, &mut events);
        self.tick_moves(now, &mut events);
        self.carry_out(now, events, out);
        let core = self.core.lock();
        let look =
            if core.leases.delegated_volumes().is_empty() { Time::NEVER } else { now + ROOM_CHECK };
        core.leases.wake_at().min(look).min(self.moves.lock().wake_at())
    }

    /// Executes a call. The reply comes as an effect, now or after acknowledgements, a lock or the
    /// end of grace. `now` is the steady clock, `wall` the time that files get.
    pub fn perform(
        &self,
        now: Time,
        wall: Timestamp,
        caller: &Caller,
        origin: ReplyAddress,
        call: Call,
        out: &mut Vec<Effect>,
    ) {
        self.counters.count(&call);
        let mut core = self.core.lock();
        core.slots.note(origin.session, caller);
        let begun = core.slots.begin(origin);
        let is_permitted = may_run(&core.leases, origin, &call);
        match begun {
            Begin::Execute if is_permitted => {
                drop(core);
                let mut events = Vec::new();
                self.run(now, wall, caller, origin, &call, &mut events, out);
                self.carry_out(now, events, out);
            }
            Begin::Execute => {
                let waiting = Waiting::Execute { wall, caller: caller.clone(), origin, call };
                let queued = core.enqueue(waiting);
                drop(core);
                if let Err(fault) = queued {
                    self.finish(origin, false, Err(fault), None, out);
                }
            }
            Begin::Running => {}
            Begin::Replied(result) => {
                out.push(Effect::Reply { origin, result: *result, body: None });
            }
            Begin::Recorded(record) => {
                let Some(answer) = (self.config.decode)(&record) else {
                    tracing::error!(
                        ?origin,
                        "a stored reply cannot be decoded; the repeated request is refused"
                    );
                    out.push(Effect::Reply { origin, result: Err(Fault::Damaged), body: None });
                    return;
                };
                if is_permitted {
                    out.push(Effect::Reply { origin, result: Ok(answer), body: None });
                } else if !core.queue.contains(origin) {
                    let queued = core.enqueue(Waiting::Reply { origin, answer: Box::new(answer) });
                    out.extend(queued.err().map(|fault| Effect::Reply {
                        origin,
                        result: Err(fault),
                        body: None,
                    }));
                }
            }
            Begin::Refused(fault) => {
                out.push(Effect::Reply { origin, result: Err(fault), body: None });
            }
        }
    }

    /// Whether the call may wait for the disk, so that the driver runs it on its pool.
    pub fn may_block(&self, call: &Call) -> bool {
        match call.traits().blocking {
            CallBlocking::Never => false,
            CallBlocking::Body | CallBlocking::Arguments => moves_much(call),
            CallBlocking::Disk
            | CallBlocking::Database
            | CallBlocking::Both
            | CallBlocking::Notice => true,
        }
    }

    /// A volume that is online.
    ///
    /// # Errors
    /// `NoVolume`, `Offline`.
    pub(crate) fn volume(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        let volume = self.any_volume(id)?;
        match (volume.is_away(), volume.is_offline()) {
            (false, false) => Ok(volume),
            (true, _) => Err(Fault::NoVolume),
            (false, true) => Err(Fault::Offline),
        }
    }

    /// A volume, even if it is offline.
    ///
    /// # Errors
    /// `NoVolume`.
    pub(crate) fn any_volume(&self, id: VolumeId) -> Result<Arc<ViceVolume>, Fault> {
        if let Some(volume) = self.volumes.get(id) {
            return Ok(volume);
        }
        loop {
            let (no, store) = self.partitions.volume(id)?.ok_or(Fault::NoVolume)?;
            let partition = self.partitions.get(no)?.clone();
            let volume = self.volumes.insert(id, ViceVolume::new(store, no, partition)?);
            self.note_doubt(&volume);
            if !volume.store.is_gone() {
                return Ok(volume);
            }
        }
    }
}

/// Whether grace permits this call: changes wait until grace is over (CB-5), reads for sessions
/// that may have changed files under delegations, and those may send their changes at any time.
pub(crate) fn may_run(leases: &Leases, origin: ReplyAddress, call: &Call) -> bool {
    match call {
        Call::Delegated { .. } | Call::AdoptBody { .. }
            if leases.reclaims_delegations(origin.session) =>
        {
            true
        }
        call if call.changes() => leases.may_change(),
        call if call.traits().effect == CallEffect::Look => leases.may_read(origin.session),
        _ => true,
    }
}

/// Flag in a session's durable record: it may have had delegations.
pub(crate) const HAD_DELEGATIONS: u8 = 1;
/// Interval at which the room that is set aside for delegations is compared with the free room,
/// while there are any.
const ROOM_CHECK: std::time::Duration = std::time::Duration::from_secs(1);

/// Up to this size a read or write is one copy from or into the page cache.
const BULK_BYTES: usize = 64 << 10;
/// Up to this many checksums are a few records.
const FEW_SUMS: u32 = 64;

/// Whether the call reads or writes so much of a body that it may wait for the disk.
fn moves_much(call: &Call) -> bool {
    let asks_much = match call {
        Call::Write { stable, .. } => *stable,
        Call::ReadSums { count, .. } => *count > FEW_SUMS,
        Call::SetStatus { change, .. } => change.size.is_some(),
        Call::Delegated { call, .. } => return moves_much(call),
        _ => false,
    };
    asks_much || call.data().bytes() > BULK_BYTES
}
