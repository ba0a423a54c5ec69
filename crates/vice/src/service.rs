//! The file service, as its driver uses it.
//!
//! The life of a call. *Begin*: its slot shows whether it is new, running, or done. A change waits
//! until grace is over. *Execute* (`dispatch.rs`, `calls/`): checks, reads, and for a change one
//! commit with its reply record inside (`files/change.rs`). A change then *breaks* the promises
//! that it made stale; if there are any, the reply waits for the ticket. *Finish* (`runner.rs`)
//! stores the reply in the slot and sends it.
//!
//! A call on files that another session covers leaves nothing behind: it is *parked*
//! (`sessions/waiting_calls.rs`), and executed from its beginning when the delegation is back.
//!
//! Order of locks: `moves` of a volume, stripes of vnodes, `growth` of a volume, those of attaching
//! and marking (`sessions/registry.rs`), then the tables of `sessions/mod.rs`.

use std::sync::Arc;
use std::time::Duration;

use lease::{EndReason, Leases, Output, RenewalOutcome};
use store::{Partition, Rewrapped, StoreError};
use types::{
    Answer, BreakId, Call, CallBlocking, Changed, ClientId, DataUse, Fault, Fid, Host, KeyPrint,
    Name, PartitionNo, ReplyAddress, Revision, ServerId, ServerInfo, SessionId, Time, Timestamp,
    VolumeCall, VolumeId,
};

use crate::admin::{Fetch, Freezing, Transfers, VolumeAdmin, Work};
use crate::audit::Audit;
use crate::base::CallCounters;
use crate::call::Execution;
use crate::calls::body_loan;
use crate::calls::joining::{Admission, WithdrawnKeys};
use crate::cell::{CellCopies, CellLink, Identities, JoinAttempts, Lookup, LookupThreads, Rules};
use crate::dispatch::Dispatch;
use crate::enforcement::Enforcement;
use crate::files::{Files, Sites};
use crate::gate::Gate;
use crate::runner::{Runner, may_run};
use crate::sessions::{
    Attached, Begin, Blanks, Coherence, GivenSlots, Loans, Registry, Waiting, Waits,
};
use crate::standby::{Feeds, FeedsParts, Followers};
use crate::volumes::{VolumeAssembly, VolumeOptions, Volumes};
use crate::{Effect, Partitions, ViceConfig, ViceParts};

/// The file service: all rules of access and of POSIX, promises, and exactly-once. Thread-safe; has
/// no sockets and reads no clock.
pub struct Vice {
    registry: Arc<Registry>,
    coherence: Arc<Coherence>,
    volumes: Arc<Volumes>,
    files: Arc<Files>,
    loans: Arc<Loans>,
    cell: Arc<CellLink>,
    identities: Arc<Identities>,
    rules: Arc<Rules>,
    enforcement: Arc<Enforcement>,
    freezing: Arc<Freezing>,
    transfers: Arc<Transfers>,
    followers: Arc<Followers>,
    feeds: Arc<Feeds>,
    runner: Runner,
    /// Decodes reply records.
    decode: fn(&[u8]) -> Option<Answer>,
}

impl Vice {
    /// Serves partitions alone: without a cell's database, and without the driver's threads. As
    /// [`Vice::open_with`].
    ///
    /// # Errors
    /// As [`Vice::open_with`].
    pub fn open(
        partitions: impl Into<Partitions>,
        config: ViceConfig,
        now: Time,
    ) -> Result<Vice, StoreError> {
        Vice::open_with(partitions, config, ViceParts::default(), now)
    }

    /// Serves partitions. If the first one records sessions of an earlier server instance, grace
    /// begins.
    ///
    /// # Errors
    /// Errors of reading the session records.
    pub fn open_with(
        partitions: impl Into<Partitions>,
        config: ViceConfig,
        parts: ViceParts,
        now: Time,
    ) -> Result<Vice, StoreError> {
        let partitions = partitions.into();
        let nameless = || ServerInfo {
            id: ServerId(partitions.home().id()),
            name: String::new(),
            addresses: Vec::new(),
            keys: Vec::new(),
        };
        let named = parts.me.as_ref().map(|me| me.id);
        let cell = Arc::new(CellLink::new(parts.cell, parts.me.unwrap_or_else(nameless)));
        let registry = Arc::new(Registry::open(partitions.clone(), &config, named, now)?);
        let (coherence, requests) = (Arc::clone(registry.coherence()), registry.requests());
        let is_session = |session| coherence.leases().sessions().has(session);
        let blanks = Blanks::open(&partitions, is_session)?;
        let volumes = Arc::new(Volumes::new(partitions));
        let sites = Sites::new(Arc::clone(&cell), Arc::clone(&volumes));
        let (encode, coherent) = (config.encode, Arc::clone(&coherence));
        let files = Files::new(Arc::clone(&volumes), sites, coherent, encode);
        let (files, loans) = (Arc::new(files), Arc::new(Loans::default()));
        let authenticator = parts.authenticator;
        let identities =
            Identities::new(Arc::clone(&cell), authenticator.clone(), parts.principals);
        let identities = Arc::new(identities);
        let rules = Arc::new(Rules::new(Arc::clone(&cell), Arc::clone(&identities)));
        let enforcement =
            Enforcement::new(Arc::clone(&rules), Arc::clone(&coherence), Arc::clone(requests));
        let enforcement = Arc::new(enforcement);
        let gate = Arc::new(Gate::new(
            Arc::clone(&rules),
            Arc::clone(&identities),
            Arc::clone(&cell),
            Arc::clone(&volumes),
            Arc::clone(&coherence),
        ));
        let audit = Arc::new(Audit::new(parts.audit, Arc::clone(&cell)));
        let freezing = Arc::new(Freezing::new(
            Arc::clone(&files),
            Arc::clone(&loans),
            Arc::clone(&cell),
            config.lease.lease,
        ));
        let transfers = Arc::new(Transfers::new(
            Arc::clone(&files),
            Arc::clone(&loans),
            Arc::clone(&cell),
            Arc::clone(&gate),
            parts.transfers,
        ));
        let admin = VolumeAdmin::new(
            Arc::clone(&files),
            Arc::clone(&loans),
            Arc::clone(&cell),
            Arc::clone(&freezing),
            Arc::clone(&transfers),
        );
        let followers = Arc::new(Followers::new(
            Arc::clone(&files),
            Arc::clone(&cell),
            config.lease.lease,
            parts.standbys,
        ));
        let feeds = Arc::new(Feeds::new(FeedsParts {
            files: Arc::clone(&files),
            loans: Arc::clone(&loans),
            cell: Arc::clone(&cell),
            rules: Arc::clone(&rules),
            registry: Arc::clone(&registry),
            freezing: Arc::clone(&freezing),
            followers: Arc::clone(&followers),
        }));
        let dispatch = Dispatch {
            files: Arc::clone(&files),
            loans: Arc::clone(&loans),
            blanks,
            given: GivenSlots::default(),
            registry: Arc::clone(&registry),
            cell: Arc::clone(&cell),
            copies: CellCopies::default(),
            identities: Arc::clone(&identities),
            enforcement: Arc::clone(&enforcement),
            audit: Arc::clone(&audit),
            authenticator,
            admission: Admission {
                certifier: parts.certifier,
                attempts: JoinAttempts::default(),
                withdrawn: WithdrawnKeys::default(),
            },
            admin,
            feeds: Arc::clone(&feeds),
            scrub: parts.scrub,
            counters: CallCounters::default(),
        };
        let runner = Runner {
            dispatch,
            coherence: Arc::clone(&coherence),
            requests: Arc::clone(requests),
            volumes: Arc::clone(&volumes),
            identities: Arc::clone(&identities),
            rules: Arc::clone(&rules),
            gate,
            audit,
            lookups: LookupThreads::new(parts.lookups),
            feeds: Arc::clone(&feeds),
        };
        if coherence.leases().may_change() {
            files.drop_orphans(now);
        }
        Ok(Vice {
            registry,
            coherence,
            volumes,
            files,
            loans,
            cell,
            identities,
            rules,
            enforcement,
            freezing,
            transfers,
            followers,
            feeds,
            runner,
            decode: config.decode,
        })
    }

    /// The first partition.
    pub fn partition(&self) -> &Partition {
        self.partitions().home()
    }

    /// All partitions of the server.
    pub fn partitions(&self) -> &Partitions {
        self.volumes.partitions()
    }

    /// Callers' identities at this server.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// The record of this server; without addresses if none was set.
    pub fn me(&self) -> &ServerInfo {
        self.cell.me()
    }

    /// Wraps the keys of all encrypted volumes again, with the present wrapping key.
    ///
    /// # Errors
    /// As `store::Partition::wrap_keys_anew`.
    pub fn wrap_keys_anew(&self) -> Result<Rewrapped, StoreError> {
        let mut all = Rewrapped::default();
        for partition in self.partitions().iter() {
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
        let volume = self.volumes.volume(id).ok()?;
        Some((volume.no, volume.partition.clone()))
    }

    /// Number and partition name of the volume with this name, if it is here.
    ///
    /// # Errors
    /// Errors of the partition.
    pub fn find_volume(&self, name: &Name) -> Result<Option<(VolumeId, String)>, Fault> {
        let Some(id) = self.partitions().named(name.as_bytes())? else { return Ok(None) };
        let volume = self.volumes.any_volume(id)?;
        Ok(self.partitions().name_of(volume.no).map(|partition| (id, partition.to_owned())))
    }

    /// Does something with the leases, and carries out the outputs.
    fn with<T>(
        &self,
        now: Time,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Vec<Output>) -> T,
    ) -> T {
        let mut events = Vec::new();
        let result = act(&mut events);
        self.runner.carry_out(now, events, out);
        result
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
        self.with(now, out, |events| self.registry.attach(now, client, incarnation, events))
    }

    /// Creates an anonymous session: the server records nothing of it, and no change waits for it.
    /// [`Vice::prove`] makes it authenticated.
    ///
    /// # Errors
    /// As [`Vice::attach`].
    pub fn attach_stranger(
        &self,
        now: Time,
        client: ClientId,
        incarnation: u64,
        out: &mut Vec<Effect>,
    ) -> Result<Attached, Fault> {
        self.with(now, out, |events| {
            self.registry.attach_anonymous(now, client, incarnation, events)
        })
    }

    /// An authenticated user, or one of a trusted host, calls through the session: it becomes
    /// authenticated and is recorded. Syncs the home partition the first time.
    ///
    /// # Errors
    /// `Expired` if the session is over, also because a later incarnation of its client was
    /// authenticated before (EO-2); `Medium` if it cannot be recorded.
    pub fn prove(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) -> Result<(), Fault> {
        self.with(now, out, |events| self.registry.prove(now, session, events))
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
        self.with(now, out, |events| {
            self.registry.resume(now, session, client, incarnation, events)
        })
    }

    /// Renews the session's lease after a message. False: not renewed, because the session is over,
    /// or has left a break unacknowledged for too long.
    pub fn renew(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) -> bool {
        self.runner.with_ripe(now, out, |events, ripe| self.feeds.check_fences(now, events, ripe));
        // A client may trust what it has of a fenced volume for one lease more, and no longer.
        if self.feeds.withholds(session) {
            return false;
        }
        self.coherence.leases().renew(now, session) == RenewalOutcome::Renewed
    }

    /// Ends the session of a client that leaves: its locks, holds and promises end at once.
    pub fn detach(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        self.with(now, out, |events| {
            self.coherence.leases().end(now, session, EndReason::Detached, events);
        });
    }

    /// Ends the session of a client whose process is known to be dead (its host reported it),
    /// without waiting for its lease.
    pub fn peer_died(&self, now: Time, session: SessionId, out: &mut Vec<Effect>) {
        self.with(now, out, |events| {
            self.coherence.leases().end(now, session, EndReason::PeerDied, events);
        });
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
        self.with(now, out, |events| {
            let mut leases = self.coherence.leases();
            for fid in leases.promises().items_of(session, id) {
                if !held.contains(&fid) && !leases.holds().has(session, fid) {
                    self.files.note_closed(session, fid);
                }
            }
            leases.ack(session, id, held, events);
        });
    }

    /// Sets the host of the session, for shared limits. `None`: the server's own user, or another
    /// server.
    pub fn set_host(&self, session: SessionId, host: Option<Host>) {
        self.coherence.leases().sessions_mut().set_host(session, host);
    }

    /// Whether the session is anonymous.
    pub fn is_stranger(&self, session: SessionId) -> bool {
        self.coherence.leases().sessions().is_anonymous(session)
    }

    /// Whether a panic left the tables of sessions and promises half changed: the server answers no
    /// more calls and must be restarted.
    pub fn is_broken(&self) -> bool {
        self.registry.is_broken()
    }

    /// Slots of an authenticated session.
    pub fn slots_max(&self) -> u32 {
        self.registry.slots_max()
    }

    /// Removes the incarnations of clients that have been away for
    /// [`types::limits::CLIENT_KEPT_DAYS`]. Call it now and then; `wall` is today. Returns how many
    /// it removed.
    ///
    /// # Errors
    /// `Medium`, `Damaged`.
    pub fn forget_clients(&self, wall: Timestamp) -> Result<usize, Fault> {
        self.registry.forget_clients(wall)
    }

    /// Cancels a waiting request of the client; it is answered with `Cancelled` unless it is done
    /// already.
    pub fn cancel(&self, now: Time, origin: ReplyAddress, out: &mut Vec<Effect>) {
        let mut events = Vec::new();
        self.coherence.leases().locks_mut().cancel(origin, &mut events);
        if self.registry.requests().cancel(origin) || self.feeds.cancel(origin) {
            self.runner.finish(origin, true, Err(Fault::Cancelled), None, None, out);
        }
        self.runner.carry_out(now, events, out);
    }

    /// Does the periodic work; returns when to call it again at the latest.
    pub fn tick(&self, now: Time, out: &mut Vec<Effect>) -> Time {
        self.with(now, out, |events| {
            self.coherence.leases().tick(now, events);
            self.files.check_room(now, events);
            self.freezing.tick(now, events);
        });
        let standbys =
            self.runner.with_ripe(now, out, |events, ripe| self.feeds.tick(now, events, ripe));
        let copies = self.runner.dispatch.copies.expire(now);
        let leases = self.coherence.leases();
        let look =
            if leases.delegations().volumes().is_empty() { Time::NEVER } else { now + ROOM_CHECK };
        let moves = self.volumes.moves().wake_at(now);
        leases.wake_at().min(look).min(copies).min(moves).min(standbys)
    }

    /// Updates the records of all loaned bodies, and ends the loans that are over; whether any
    /// ended. Call it each second.
    pub fn tend(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) -> bool {
        // Puts new fence rules into force here if a running call prevented it before.
        self.enforce_rules(now, wall, out);
        if !self.coherence.leases().may_change() {
            // Sessions of the earlier server instance may reclaim their loans.
            return false;
        }
        let loaned: Vec<_> = self.partitions().iter().flat_map(Partition::lent).collect();
        let mut ended = false;
        for (volume, no) in loaned {
            ended |= self.with(now, out, |events| {
                body_loan::tend(&self.files, &self.loans, (now, wall), (volume, no), events)
            });
        }
        ended
    }

    /// Asks the server of the database whether groups have changed. Call it several times a second,
    /// in a thread that may wait. The question confirms that all earlier news is in force: so it
    /// waits until all clients that know rights have acknowledged the break of them.
    pub fn hear_news(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) {
        let Some(db) = self.cell.available() else { return };
        // One more turn puts the news into force, and lets the calls that wait for it return at
        // once.
        while self.enforce_rules(now, wall, out) && self.coherence.is_news_in_force() {
            let before = db.access().latest();
            db.access().listen(self.me().id);
            if db.access().latest() == before {
                return;
            }
            // Groups of volumes give no rights.
            let no_rights =
                |(_, changed): &(Revision, Changed)| matches!(changed, Changed::Group(_));
            let nothing = |(_, changes): celldb::News| {
                changes.is_some_and(|changes| changes.iter().all(no_rights))
            };
            if !db.access().news(before).is_ok_and(nothing) {
                self.with(now, out, |events| self.coherence.break_rights_at_news(now, events));
            }
        }
    }

    /// Enforces the latest rules: sessions of fenced callers, and of servers whose keys are no
    /// longer listed, end. False: calls that began before are not done yet.
    pub fn enforce_rules(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) -> bool {
        self.with(now, out, |events| self.enforcement.enforce(now, wall, events))
    }

    /// The state by which callers are judged: the latest revision of the rules, with the servers'
    /// keys, that this server received (0: none); and the count of changes of rights, of any
    /// principal in any volume. A caller that was judged after both were read is judged the same
    /// while both stay.
    pub fn judged_by(&self) -> (Revision, u64) {
        (self.rules.revision(), self.coherence.rights_changes())
    }

    /// Whether the cell's database lists this key as a server's, as of the latest rules here.
    pub fn lists_server(&self, key: &KeyPrint) -> bool {
        self.rules.lists_server(key)
    }

    /// The keys of servers that were withdrawn; none if the database cannot be asked.
    pub fn withdrawn_keys(&self) -> Vec<KeyPrint> {
        let db = self.cell.available();
        db.and_then(|db| db.access().withdrawn().ok()).unwrap_or_default()
    }

    /// Whether the cell's database must be asked about a volume, or its standbys. Call it several
    /// times a second.
    pub fn has_doubts(&self, now: Time) -> bool {
        self.volumes.moves().has_doubts(now) || self.feeds.has_database_work(now)
    }

    /// Asks the cell's database about volumes in doubt and about standbys, which may take long.
    pub fn settle_doubts(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) {
        self.with(now, out, |events| self.freezing.settle_doubts(now, wall, events));
        self.runner.with_ripe(now, out, |events, ripe| self.feeds.settle(now, events, ripe));
    }

    /// The volumes elsewhere for which this server stands by.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// Does the next step of a pull that needs no answer. May wait for the disk.
    pub fn work(
        &self,
        fetch: &mut Fetch,
        now: Time,
        wall: Timestamp,
        out: &mut Vec<Effect>,
    ) -> Work {
        self.with(now, out, |events| fetch.work(&self.transfers, now, wall, events))
    }

    /// Answers the questions of a pull that reads from this very server.
    ///
    /// # Errors
    /// As these calls.
    pub fn answer_here(&self, call: &VolumeCall) -> Result<Answer, Fault> {
        self.transfers.answer_here(call)
    }

    /// Executes a call from [`crate::LookupHook`], in a thread that may wait; `now`: the present
    /// time.
    pub fn look_up(&self, now: Time, lookup: Lookup, out: &mut Vec<Effect>) {
        self.runner.look_up(now, lookup, out);
    }

    /// Tells standbys what a call will ask of them, before it is executed: a commit is theirs to
    /// make while this server makes its own.
    pub fn announce(&self, now: Time, call: &Call, out: &mut Vec<Effect>) {
        if let Call::Commit { fid } | Call::CommitVolume { fid } = call {
            self.runner.announce(now, fid.volume, out);
        }
    }

    /// Executes a call. The reply comes as an effect, now or after acknowledgements, a lock or the
    /// end of grace.
    pub fn perform(&self, execution: Execution<'_>, call: Call, out: &mut Vec<Effect>) {
        let Execution { now, wall, caller, origin, .. } = execution;
        self.runner.dispatch.counters.count(&call);
        let begun = self.registry.requests().begin(origin, caller, call.changed_volume());
        let leases = self.coherence.leases();
        let is_permitted = may_run(&leases, origin, &call);
        match begun {
            Begin::Execute if is_permitted => {
                drop(leases);
                let mut events = Vec::new();
                self.runner.run(execution, &call, &mut events, out);
                self.runner.carry_out(now, events, out);
            }
            Begin::Execute => {
                let (caller, generation) = (caller.clone(), self.runner.generation_of(&call));
                let waiting = Waiting::Execute { wall, caller, origin, call, generation };
                if let Err(fault) = self.wait_for_grace(&leases, waiting) {
                    self.runner.finish(origin, false, Err(fault), None, None, out);
                }
            }
            Begin::Running => {}
            Begin::Replied(result) => {
                out.push(Effect::Reply { origin, result: *result, body: None });
            }
            Begin::Recorded(record) => {
                let Some(answer) = (self.decode)(&record) else {
                    tracing::error!(
                        ?origin,
                        "a stored reply cannot be decoded; the repeated request is refused"
                    );
                    out.push(Effect::Reply { origin, result: Err(Fault::Damaged), body: None });
                    return;
                };
                if is_permitted {
                    drop(leases);
                    self.runner.send_recorded(origin, answer, call.changed_volume(), out);
                } else {
                    let changed = call.changed_volume();
                    let waiting = Waiting::Reply { origin, answer: Box::new(answer), changed };
                    let queued = self.wait_for_grace(&leases, waiting);
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

    fn wait_for_grace(&self, leases: &Leases, waiting: Waiting) -> Result<(), Fault> {
        let of_nobody = leases.sessions().is_anonymous(waiting.origin().session);
        self.registry.requests().wait_for_grace(waiting, of_nobody)
    }
}

/// Puts the contents of a volume together that is offline. Those of a read-only volume are put
/// together in the read-write volume of its tree, which is made for that.
///
/// # Errors
/// `NoVolume`, `ReadOnly`; `Busy`: the volume is in service, or what an earlier attempt left is
/// being removed; `Exists`: the read-write volume is here.
pub fn assemble(vice: &Vice, id: VolumeId) -> Result<VolumeAssembly, Fault> {
    VolumeAssembly::begin(&vice.volumes, id)
}

/// Whether a volume does not serve clients of AFS.
///
/// # Errors
/// `NoVolume`.
pub fn refuses_afs(vice: &Vice, id: VolumeId) -> Result<bool, Fault> {
    let volume = vice.volumes.any_volume(id)?;
    Ok(volume.options().has(VolumeOptions::REFUSES_AFS))
}

/// Whether the call may wait for the disk, so that the driver runs it on its pool.
pub fn may_block(call: &Call) -> bool {
    match call.traits().blocking {
        CallBlocking::Never => false,
        CallBlocking::Body | CallBlocking::Arguments => moves_much(call),
        CallBlocking::Disk | CallBlocking::Database | CallBlocking::Both | CallBlocking::Notice => {
            true
        }
    }
}

/// Interval at which the room that is set aside for delegations is compared with the free room,
/// while there are any.
const ROOM_CHECK: Duration = Duration::from_secs(1);

/// Up to this size a read or write is one copy from or into the page cache.
const BULK_BYTES: usize = 64 << 10;
/// Up to this many checksums are a few records.
const FEW_SUMS: u32 = 64;

/// Whether the call reads or writes so much of a body, or a record, that it may wait for the disk.
fn moves_much(call: &Call) -> bool {
    let asks_much = match call {
        Call::Write { stable, .. } => *stable,
        Call::ReadSums { count, .. } => *count > FEW_SUMS,
        Call::SetStatus { change, .. } => change.size.is_some(),
        // The session's record gets a mark, and the file perhaps a version.
        Call::Open { deny, key, .. } => *deny != DataUse::Nothing || key.is_some(),
        Call::Delegated { call, .. } => return moves_much(call),
        _ => false,
    };
    asks_much || call.data().bytes() > BULK_BYTES
}
