//! The file service as its driver sees it.
//!
//! The life of a call. *Begin*: its slot says whether it is new, running, or done. A change waits
//! while the earlier life of the server is not settled. *Execute* (`calls/`): rules, reads, and for
//! a change one commit that has its reply record inside (`change.rs`). A change then *breaks* the
//! promises that it made untrue; if anyone holds one, the reply waits for the ticket. *Finish*
//! (`completion.rs`) remembers the reply in the slot and puts it out.
//!
//! A call that meets what another session has to itself has left nothing behind: it is *parked*
//! (`waiting_calls.rs`), and executed from its beginning when that is back.
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
use crate::calls::auth::AuthDesk;
use crate::calls::{Blanks, CallCounters, Lends};
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

/// What a client learns when it attaches or resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its session.
    pub session: SessionId,
    /// The server restarted since: promises are void; locks and holds must be claimed, then
    /// `ReclaimDone` sent.
    pub reclaim: bool,
    /// Unstable writes that were answered with another verifier must be sent again.
    pub verifier: BootVerifier,
    /// Slots that the session may use.
    pub slots: u32,
    /// Of each slot whose last request has a remembered reply: slot and number of the request.
    pub recorded: Vec<(u32, u64)>,
}

/// Answers [`Call::Scrub`].
pub(crate) type ScrubHook = Box<dyn Fn(bool) -> String + Send + Sync>;

/// The file service: every rule of access and of POSIX, promises, and exactly-once. Thread-safe;
/// knows no sockets and reads no clock.
pub struct Vice {
    pub(crate) config: ViceConfig,
    /// Where calls go that need the cell's database.
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
    pub(crate) desk: OnceLock<AuthDesk>,
    pub(crate) errands: OnceLock<Arc<dyn TransferAgent>>,
    pub(crate) moves: Mutex<Moves>,
    /// Counts holds that ended.
    pub(crate) holds_ended: AtomicU64,
    /// Held by who gives names and numbers to volumes.
    pub(crate) naming: Mutex<()>,
    pub(crate) whose: IdentityCache,
    pub(crate) ruled: FenceEpoch,
    pub(crate) witness: OnceLock<Arc<dyn AuditLog>>,
    pub(crate) refusals: Refusals,
    pub(crate) attaching: Mutex<()>,
    pub(crate) marking: Mutex<()>,
}

/// Everything in memory that calls share.
pub(crate) struct ServiceTables {
    pub leases: Leases,
    pub slots: SlotTable,
    /// Calls that wait for the grace period.
    pub queue: CallQueue<Waiting>,
    /// Calls that wait for delegations of others.
    pub parked: CallQueue<Parked>,
    /// Slots for new files that sessions may give themselves.
    pub given: HashMap<(SessionId, VolumeId), Vec<VnodeSlots>>,
    /// Volumes of which somebody was told what he may do there.
    pub told_rights: HashSet<VolumeId>,
    /// They are hearing that this is another, because principals changed elsewhere.
    pub rights_ticket: Option<BreakTicket>,
    /// Changes that are done but not acknowledged.
    pub pending: HashMap<BreakTicket, PendingChange>,
    /// How many of them took the last name of a file.
    pub removing: HashMap<Fid, u32>,
    /// Whose kernels write into which bodies.
    pub lends: Lends,
    /// Blank bodies that sessions have.
    pub blanks: Blanks,
    /// Who waits for locks, and whether a fence came between.
    pub lock_waits: HashMap<ReplyAddress, (Caller, bool)>,
    pub opened: OpenRights,
}

impl ServiceTables {
    fn enqueue(&mut self, waiting: Waiting) -> Result<(), Fault> {
        let of_nobody = self.leases.is_stranger(waiting.origin().session);
        self.queue.push(waiting, of_nobody)
    }

    /// Breaks what was told of rights, in all volumes.
    pub fn break_rights(&mut self, now: Time, events: &mut Vec<Output>) -> Option<BreakTicket> {
        self.leases.rights_changed();
        let item = |volume: VolumeId| BreakItem {
            fid: Fid::rights(volume),
            reason: BreakReason::Status,
            name: None,
        };
        let items: Vec<BreakItem> = self.told_rights.drain().map(item).collect();
        // No session has number 0: all hear of it.
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

/// Where a call comes from, and what came of it beside the answer.
pub(crate) struct CallContext<'a> {
    pub now: Time,
    pub wall: Timestamp,
    pub caller: &'a Caller,
    pub principals: &'a dyn Principals,
    pub origin: ReplyAddress,
    /// To be settled once no lock is held.
    pub events: Vec<Output>,
    /// The change was answered by the session itself, with this slot for its new file (0: none).
    pub delegated: Option<u64>,
    /// Directories that others have to themselves: the call is to be tried again when one of them
    /// is back. Whoever adds to it refuses the call with `Busy`, which nobody sees then.
    pub waits: Vec<Fid>,
    /// How often the volume's access model had changed when the call began to look.
    pub models: u64,
    /// Likewise anybody's rights.
    pub rights_changes: u64,
    /// The call is to be executed anew: what it saw is not true any more.
    pub again: bool,
}

impl<'a> CallContext<'a> {
    /// Who asks.
    pub fn asker(&self) -> CallerView<'a> {
        CallerView { caller: self.caller, principals: self.principals }
    }
}

impl Vice {
    /// Serves partitions. If sessions of an earlier life are recorded on the first, grace begins.
    ///
    /// # Errors
    /// If the session records cannot be read.
    pub fn open(
        partitions: impl Into<Partitions>,
        config: ViceConfig,
        now: Time,
    ) -> Result<Vice, StoreError> {
        let partitions = partitions.into();
        let records = partitions.home().sessions()?;
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
            partition.forget_replies(&is_known)?;
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
                told_rights: HashSet::new(),
                rights_ticket: None,
                pending: HashMap::new(),
                removing: HashMap::new(),
                lends: Lends::default(),
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
            desk: OnceLock::new(),
            errands: OnceLock::new(),
            moves: Mutex::default(),
            holds_ended: AtomicU64::new(0),
            naming: Mutex::new(()),
            whose: IdentityCache::default(),
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

    /// Who knows the principals instead of the cell's database. Said once, before the first call.
    pub fn set_principals(&self, principals: Arc<dyn Principals>) {
        // A second one is the same server's.
        let _ = self.principals.set(principals);
    }

    /// Who answers [`Call::Scrub`]: given `start`, returns the report. The driver owns the thread
    /// that does the work.
    pub fn on_scrub(&self, hook: Box<dyn Fn(bool) -> String + Send + Sync>) {
        *self.scrub.lock() = Some(hook);
    }

    /// The first partition that is served.
    pub fn partition(&self) -> &Partition {
        self.partitions.home()
    }

    /// All that are served.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// Wraps the keys of all encrypted volumes anew, as their keeper wraps now.
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

    /// The partition that a delegated change goes to: `None` of another call, and where there is no
    /// such volume.
    pub fn partition_of_delegated(&self, call: &Call) -> Option<(PartitionNo, Partition)> {
        let Call::Delegated { call, .. } = call else { return None };
        let id = call.changed_volume()?;
        let volume = self.volume(id).ok()?;
        Some((volume.no, volume.partition.clone()))
    }

    /// A new session. Sessions of earlier incarnations of the client end (EO-2). Syncs the home.
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
        if self.partitions.home().incarnation(client)?.is_some_and(|newest| newest > incarnation) {
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
        self.settle(now, events, out);
        recorded?;
        Ok(self.attached(session, false))
    }

    /// The number is used up on all partitions before anyone hears it, and the record is there
    /// before it is needed.
    pub(crate) fn record_session(
        &self,
        session: SessionId,
        client: ClientId,
        incarnation: u64,
    ) -> Result<(), StoreError> {
        let home = self.partitions.home();
        home.put_incarnation(client, incarnation)?;
        home.put_session(&SessionRecord {
            session,
            client,
            incarnation,
            extra: bytes::Bytes::new(),
        })?;
        self.partitions.use_up_session(session)?;
        home.sync()
    }

    /// The session's client is back on a new connection. Breaks that it has not acknowledged are
    /// put out again.
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
        self.settle(now, events, out);
        Ok(self.attached(session, resumed.map_err(|_| Fault::Expired)?.reclaim))
    }

    pub(crate) fn attached(&self, session: SessionId, reclaim: bool) -> Attached {
        let recorded = self.core.lock().slots.recorded(session);
        let verifier = self.partitions.boot_verifier();
        Attached { session, reclaim, verifier, slots: self.config.slots_max, recorded }
    }

    /// The session was heard of; its lease runs from here. False: it does not, because the session
    /// is over, or has left a break unacknowledged for too long.
    pub fn renew(&self, now: Time, session: SessionId, _out: &mut Vec<Effect>) -> bool {
        self.core.lock().leases.renew(now, session) == RenewalOutcome::Renewed
    }

    /// The client leaves for good: its locks, holds and promises end at once.
    pub fn detach(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        self.core.lock().leases.detach(now, session, &mut events);
        self.settle(now, events, out);
    }

    /// The client's process is known to be dead (its host said so), so nobody needs to wait for its
    /// lease.
    pub fn peer_died(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        self.core.lock().leases.peer_died(now, session, &mut events);
        self.settle(now, events, out);
    }

    /// The session acknowledges a break. `held`: files among its items that the client has open.
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
        self.settle(now, events, out);
    }

    /// The client takes a waiting request back; it is answered with `Cancelled` unless it is done
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
        self.settle(now, events, out);
    }

    /// Does what is due; returns when to call again at the latest.
    pub fn tick(&self, now: Time, out: &mut Vec<Effect>) -> Time {
        let mut events = Vec::new();
        self.core.lock().leases.tick(now, &mut events);
        self.look_at_room(now, &mut events);
        self.tick_moves(now, &mut events);
        self.settle(now, events, out);
        let core = self.core.lock();
        let look =
            if core.leases.delegated_volumes().is_empty() { Time::NEVER } else { now + ROOM_LOOK };
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
        let settled = may_run(&core.leases, origin, &call);
        match begun {
            Begin::Execute if settled => {
                drop(core);
                let mut events = Vec::new();
                self.run(now, wall, caller, origin, &call, &mut events, out);
                self.settle(now, events, out);
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
                    tracing::error!(?origin, "a reply record cannot be read");
                    out.push(Effect::Reply { origin, result: Err(Fault::Damaged), body: None });
                    return;
                };
                if settled {
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

    /// A volume that serves.
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

    /// A volume, also one that was taken off.
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

/// Whether the earlier life is settled far enough for this call: changes wait for all of it (CB-5),
/// whoever looks at files for those that may have changed them on their own, and those may say so
/// at any time.
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

/// In a session's durable record: it may have had delegations.
pub(crate) const HAD_DELEGATIONS: u8 = 1;
/// How often the room that is set aside for delegations is compared with what is there, while there
/// are any.
const ROOM_LOOK: std::time::Duration = std::time::Duration::from_secs(1);

/// Up to here a read or write is one copy from or into the page cache.
const BULK_BYTES: usize = 64 << 10;
/// Sums that are a few records.
const FEW_SUMS: u32 = 64;

/// Whether the call's arguments ask for so much work on a body that it may wait for the disk.
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
