//! The volumes of this server that are fed to standbys: the calls, and what follows from them for
//! replies and for the service of volumes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lease::Output;
use parking_lot::{Mutex, RwLock};
use store::{Feed, Heir, NewClone};
use types::{
    Answer, Fault, FeedStart, Fid, Follow, Inherited, PartitionNo, ReplyAddress, Revision,
    ServerId, SessionId, SiteKind, Time, VolumeCall, VolumeId, VolumeKind,
};

use super::Followers;
use super::feeding::{Feeding, HeldReply, LastReplies, Ripe};
use super::names::{base_name, base_prefix};
use crate::admin::Freezing;
use crate::call::{CallContext, CallOutcome, Fed};
use crate::calls::end_idle_loans;
use crate::cell::{CellLink, Rules};
use crate::files::Files;
use crate::sessions::{Loans, Registry};
use crate::volumes::ViceVolume;

/// Replies of former servers that a base brings along at most.
const HEIRS_MAX: usize = 1 << 16;

/// See the head of the file.
pub(crate) struct Feeds {
    pub(super) files: Arc<Files>,
    loans: Arc<Loans>,
    pub(super) cell: Arc<CellLink>,
    rules: Arc<Rules>,
    registry: Arc<Registry>,
    pub(super) freezing: Arc<Freezing>,
    pub(super) followers: Arc<Followers>,
    pub(super) table: RwLock<HashMap<VolumeId, Arc<Mutex<Feeding>>>>,
    /// Whether a volume was ever in the table.
    is_used: AtomicBool,
    /// When a standby in step must have been heard, in nanoseconds of the clock; may be early.
    fence_at: AtomicU64,
    /// The earliest such time that was set since the last check began.
    fence_set: AtomicU64,
    /// Held by the check.
    checking: Mutex<()>,
    /// Held while the database is asked; the revision up to which its changes were seen.
    pub(super) settling: Mutex<Revision>,
    pub(super) seen: AtomicU64,
    /// When to ask the database next, if it did not answer.
    pub(super) ask_at: AtomicU64,
}

/// The parts of [`Feeds`].
pub(crate) struct FeedsParts {
    pub files: Arc<Files>,
    pub loans: Arc<Loans>,
    pub cell: Arc<CellLink>,
    pub rules: Arc<Rules>,
    pub registry: Arc<Registry>,
    pub freezing: Arc<Freezing>,
    pub followers: Arc<Followers>,
}

pub(super) fn nanos(at: Time) -> u64 {
    u64::try_from(at.since_start().as_nanos()).unwrap_or(u64::MAX)
}

impl Feeds {
    pub fn new(parts: FeedsParts) -> Feeds {
        let FeedsParts { files, loans, cell, rules, registry, freezing, followers } = parts;
        Feeds {
            files,
            loans,
            cell,
            rules,
            registry,
            freezing,
            followers,
            table: RwLock::default(),
            is_used: AtomicBool::new(false),
            fence_at: AtomicU64::new(u64::MAX),
            fence_set: AtomicU64::new(u64::MAX),
            checking: Mutex::default(),
            settling: Mutex::default(),
            seen: AtomicU64::new(0),
            ask_at: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, id: VolumeId) -> Option<Arc<Mutex<Feeding>>> {
        if !self.is_used.load(Ordering::SeqCst) {
            return None;
        }
        self.table.read().get(&id).cloned()
    }

    pub(super) fn get_or_begin(&self, id: VolumeId, unconfirmed: bool) -> Arc<Mutex<Feeding>> {
        self.is_used.store(true, Ordering::SeqCst);
        let begin = || Arc::new(Mutex::new(Feeding::new(id, unconfirmed)));
        Arc::clone(self.table.write().entry(id).or_insert_with(begin))
    }

    /// Executes the calls of this folder, and those about volumes elsewhere.
    ///
    /// # Errors
    /// The refusal.
    pub fn execute(
        &self,
        ask: &mut CallContext<'_>,
        call: &VolumeCall,
    ) -> Result<CallOutcome, Fault> {
        match call {
            VolumeCall::Feed { id, standby } => self.feed(ask, *id, *standby),
            VolumeCall::Follow(follow) => self.follow(ask, follow),
            VolumeCall::Standbys { id } => {
                self.files.volumes().any_volume(*id)?;
                let known = self.get(*id);
                let infos = known.map(|feeding| feeding.lock().infos(ask.now));
                Ok(CallOutcome::Answer(Answer::Standbys(infos.unwrap_or_default())))
            }
            VolumeCall::Inherit { id, origin } => self.inherit(ask, *id, *origin),
            VolumeCall::StandBy { partition, tree } => self.stand_by(ask, *partition, *tree),
            VolumeCall::FailOver { id, force } => {
                self.followers.fail_over((ask.now, ask.wall), *id, *force)?;
                Ok(CallOutcome::Answer(Answer::Done))
            }
            _ => Err(Fault::Unsupported),
        }
    }

    /// Stands by for the tree or no more, as the group's record says. A server that had the volume
    /// gives it up first: the answer comes when no client trusts this server any more, or is `Busy`
    /// if that may take a lease. It stands by in any case.
    fn stand_by(
        &self,
        ask: &mut CallContext<'_>,
        no: PartitionNo,
        tree: VolumeId,
    ) -> Result<CallOutcome, Fault> {
        let db = self.cell.db()?;
        let group = db.map_or(Ok(None), |db| db.group_of(tree))?;
        let home = group.as_ref().and_then(|group| group.record.read_write_site());
        let outcome = match home {
            Some(home) if home.server != self.cell.me().id => self.freezing.give_up(ask, tree),
            _ => Ok(CallOutcome::Answer(Answer::Done)),
        };
        self.followers.stand_by(no, tree)?;
        outcome
    }

    /// A server speaks for itself alone.
    fn need_to_be(&self, ask: &CallContext<'_>, standby: ServerId) -> Result<(), Fault> {
        match self.rules.server_of(ask.caller) {
            Some(server) if server != standby => Err(Fault::NotPermitted),
            _ => Ok(()),
        }
    }

    /// Seals the base of a standby, and begins to log.
    fn feed(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        standby: ServerId,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.files.volumes().any_volume(id)?;
        self.need_to_be(ask, standby)?;
        volume.need_writable()?;
        if volume.store.is_being_restored() || volume.store.is_held() || volume.is_fenced() {
            return Err(Fault::Busy);
        }
        volume.need_service()?;
        let db = self.cell.db()?.ok_or(Fault::Unsupported)?;
        let group = db.group_of(id)?.ok_or(Fault::NotPermitted)?.record;
        let site = group.standbys().find(|site| site.server == standby);
        let is_sync = site.ok_or(Fault::NotPermitted)?.kind == SiteKind::Standby;
        let number = db.take_numbers(self.highest_number()?, 1)?;
        let heirs = self.heirs(&volume)?;
        self.files.bring_in(ask, &volume)?;
        end_idle_loans(&self.files, &self.loans, &volume)?;
        if volume.partition.lent().iter().any(|(of, _)| *of == id) {
            return Err(Fault::Busy);
        }
        let naming = self.files.volumes().begin_naming();
        let begun = self.seal(ask, &volume, standby, number);
        drop(naming);
        volume.allow_delegations();
        let (start, feed) = begun?;
        self.files.volumes().moves().answer_for(id);
        let feeding = self.get_or_begin(id, false);
        let fed = (feed, Arc::clone(&volume.store));
        let encode = self.files.encode();
        let mut feeding = feeding.lock();
        // One that ends in between is in both; the later one of a slot is the last.
        let pending = self.registry.coherence().pending_of(id, encode);
        let mut known = self.registry.requests().of_volume(id, encode);
        known.extend(pending);
        let base = (start.epoch, start.place.position);
        feeding.feed(ask.now, (standby, is_sync), base, fed, LastReplies { known, heirs, encode });
        drop(feeding);
        tracing::info!(volume = id.0, %standby, epoch = start.epoch, "a standby begins");
        Ok(CallOutcome::Answer(Answer::Feed(start)))
    }

    /// The replies of former servers. They are few: what clients made last before a takeover.
    /// Should many takeovers have left many, all are left out, and only clients that were away
    /// since the last one miss them.
    fn heirs(&self, volume: &ViceVolume) -> Result<Vec<Heir>, Fault> {
        let heirs = volume.partition.standbys().heirs(volume.store.tree_id())?;
        if heirs.len() <= HEIRS_MAX {
            return Ok(heirs);
        }
        tracing::warn!(
            volume = volume.store.id().0,
            heirs = heirs.len(),
            "a standby does not get the replies of former servers: they are too many"
        );
        Ok(Vec::new())
    }

    /// The highest number that a volume here may have.
    fn highest_number(&self) -> Result<VolumeId, Fault> {
        Ok(VolumeId(self.files.volumes().partitions().next_volume()?.0 - 1))
    }

    fn seal(
        &self,
        ask: &CallContext<'_>,
        volume: &ViceVolume,
        standby: ServerId,
        number: VolumeId,
    ) -> Result<(FeedStart, Arc<Feed>), Fault> {
        let volumes = self.files.volumes();
        let epoch = volume.store.epoch();
        let name = base_name(&volume.store.name(), standby, epoch)?;
        volumes.need_free_name(&name, VolumeKind::Snapshot)?;
        volumes.need_free_number(number)?;
        let (id, kind) = (Some(number), VolumeKind::Snapshot);
        let new = NewClone { id, name, kind, now: ask.wall, replaces: None };
        let (base, place) = volume.partition.feeds().begin(volume.store.id(), &new)?;
        let feed = Feed::of(&volume.store).ok_or(Fault::Conflict)?;
        Ok((FeedStart { place, base: base.id(), epoch: base.epoch() }, feed))
    }

    fn follow(&self, ask: &CallContext<'_>, follow: &Follow) -> Result<CallOutcome, Fault> {
        let feeding = self.get(follow.id).ok_or(Fault::Conflict)?;
        self.need_to_be(ask, follow.standby)?;
        feeding.lock().follow(ask.now, ask.origin, follow)?;
        Ok(CallOutcome::Waits)
    }

    /// Removes the bases of the standby but this one.
    pub(super) fn remove_older_bases(&self, id: VolumeId, standby: ServerId, base: u64) {
        let removed = self.files.volumes().any_volume(id).and_then(|volume| {
            let prefix = base_prefix(&volume.store.name(), standby);
            self.remove_bases(&volume, &prefix, Some(base))
        });
        if let Err(fault) = removed {
            tracing::warn!(volume = id.0, %fault, "older bases of a standby stay");
        }
    }

    /// Removes the bases whose names begin so, but for that of an epoch.
    pub(super) fn remove_bases(
        &self,
        volume: &ViceVolume,
        prefix: &[u8],
        but: Option<u64>,
    ) -> Result<(), Fault> {
        for one in volume.partition.volumes().group(volume.store.id())? {
            let is_base =
                one.kind == VolumeKind::Snapshot && one.name.as_bytes().starts_with(prefix);
            if is_base && Some(one.epoch) != but {
                volume.partition.remove_volume(one.id)?;
                self.files.volumes().forget(one.id);
            }
        }
        Ok(())
    }

    fn inherit(
        &self,
        ask: &CallContext<'_>,
        id: VolumeId,
        origin: ReplyAddress,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.files.volume_to_claim(id)?;
        let client = self.registry.client_of(ask.origin.session).ok_or(Fault::Expired)?;
        let standbys = volume.partition.standbys();
        let known = standbys.reply(volume.store.tree_id(), client, origin.session, origin.slot)?;
        let (request, answer) = known.unwrap_or((0, Bytes::new()));
        let origin = ReplyAddress { request, ..origin };
        Ok(CallOutcome::Answer(Answer::Inherited(Inherited { origin, answer })))
    }

    /// Holds a reply until the standbys have what it says, or returns it (SB-1).
    pub fn hold(&self, fed: Fed, reply: HeldReply) -> Option<HeldReply> {
        if !self.is_used.load(Ordering::SeqCst) {
            return Some(reply);
        }
        let Some(feeding) = self.get(fed.volume) else {
            let is_elsewhere = match self.files.volumes().any_volume(fed.volume) {
                Ok(volume) => volume.is_superseded(),
                // It was put aside while the reply waited for acknowledgements of breaks.
                Err(_) => self.followers.has(fed.volume),
            };
            return Some(if is_elsewhere { reply.of_the_former_server() } else { reply });
        };
        feeding.lock().hold(reply, self.files.encode())
    }

    /// A call will make this volume's changes stable.
    pub fn announce(&self, now: Time, id: VolumeId, events: &mut Vec<Output>, ripe: &mut Ripe) {
        if let Some(feeding) = self.get(id) {
            feeding.lock().announce();
            self.ripen(now, id, events, ripe);
        }
    }

    /// Whether replies of this volume are held: until they are sent it is not removed.
    pub fn holds(&self, id: VolumeId) -> bool {
        self.get(id).is_some_and(|feeding| feeding.lock().holds())
    }

    /// Answers questions about this volume, lets replies go, and fences it or ends that.
    pub fn ripen(&self, now: Time, id: VolumeId, events: &mut Vec<Output>, ripe: &mut Ripe) {
        let Some(feeding) = self.get(id) else { return };
        let mut feeding = feeding.lock();
        // Before anything is sent: an answer may be the last that the volume gives.
        self.enforce(now, id, &feeding, events);
        feeding.ripen(now, &|session| self.registry.client_of(session), ripe);
        self.enforce(now, id, &feeding, events);
        if let Some(deadline) = feeding.deadline() {
            self.fence_set.fetch_min(nanos(deadline), Ordering::SeqCst);
            self.fence_at.fetch_min(nanos(deadline), Ordering::SeqCst);
        }
    }

    /// Fences the volume, or ends that, as its standbys demand.
    pub(super) fn enforce(
        &self,
        now: Time,
        id: VolumeId,
        feeding: &Feeding,
        events: &mut Vec<Output>,
    ) {
        let moves = self.files.volumes().moves();
        let wanted = feeding.is_fenced() && !feeding.is_superseded();
        if wanted == moves.is_fenced(id) {
            return;
        }
        let volume = self.files.volumes().any_volume(id).ok();
        if wanted {
            if moves.fence(id, volume.as_deref()) {
                tracing::warn!(
                    volume = id.0,
                    "a standby may take over: calls wait until the database has said that it does \
                     not"
                );
                let _ = self.files.coherence().leases().break_volume(now, id, events);
            }
        } else if moves.unfence(id, volume.as_deref()) {
            tracing::info!(volume = id.0, "the volume is served again");
            events.push(Output::DelegationsOver(vec![Fid::root(id)]));
        }
    }

    /// Fences the volumes whose standbys are silent, before anything else is done at this time.
    /// Costs nothing while there is none.
    pub fn check_fences(&self, now: Time, events: &mut Vec<Output>, ripe: &mut Ripe) {
        if nanos(now) < self.fence_at.load(Ordering::SeqCst) {
            return;
        }
        let _one_at_a_time = self.checking.lock();
        if nanos(now) < self.fence_at.load(Ordering::SeqCst) {
            return;
        }
        self.check_all(now, events, ripe);
    }

    fn check_all(&self, now: Time, events: &mut Vec<Output>, ripe: &mut Ripe) {
        self.fence_set.store(u64::MAX, Ordering::SeqCst);
        let mut first = u64::MAX;
        let all: Vec<_> =
            self.table.read().iter().map(|(id, feeding)| (*id, Arc::clone(feeding))).collect();
        for (id, feeding) in all {
            let mut feeding = feeding.lock();
            let deadline = feeding.tick(now);
            self.enforce(now, id, &feeding, events);
            feeding.ripen(now, &|session| self.registry.client_of(session), ripe);
            self.enforce(now, id, &feeding, events);
            first = first.min(deadline.map_or(u64::MAX, nanos));
        }
        loop {
            let set = self.fence_set.load(Ordering::SeqCst);
            self.fence_at.store(first.min(set), Ordering::SeqCst);
            if self.fence_set.load(Ordering::SeqCst) == set {
                return;
            }
        }
    }

    /// Handles what is due. Returns when to call it again at the latest.
    pub fn tick(&self, now: Time, events: &mut Vec<Output>, ripe: &mut Ripe) -> Time {
        if !self.is_used.load(Ordering::SeqCst) {
            return Time::NEVER;
        }
        let _one_at_a_time = self.checking.lock();
        self.check_all(now, events, ripe);
        let due = self.table.read().values().filter_map(|feeding| feeding.lock().due()).min();
        let fence = Duration::from_nanos(self.fence_at.load(Ordering::SeqCst));
        due.unwrap_or(Time::NEVER).min(Time::from_start(fence))
    }

    /// Withdraws what waits for this request. Returns whether anything did.
    pub fn cancel(&self, origin: ReplyAddress) -> bool {
        if !self.is_used.load(Ordering::SeqCst) {
            return false;
        }
        let all: Vec<_> = self.table.read().values().cloned().collect();
        all.iter().any(|feeding| feeding.lock().cancel(origin))
    }

    /// Whether leases of this session must not be renewed: it may trust something of a volume that
    /// is fenced.
    pub fn withholds(&self, session: SessionId) -> bool {
        self.is_used.load(Ordering::SeqCst)
            && self.files.volumes().moves().is_any_fenced()
            && self.registry.coherence().leases().promises().last_break(session).is_some()
    }

    /// A reply record of before this server's restart: a standby may have taken over without that
    /// change. It waits for the database's answer, or is returned (SB-1). Once the volume is put
    /// aside this server stands by for it, and may take it over again: the record is void then.
    pub fn hold_recorded(&self, changed: Option<VolumeId>, reply: HeldReply) -> Option<HeldReply> {
        let volumes = self.files.volumes();
        let is_in_question = |id: &VolumeId| match volumes.any_volume(*id) {
            Ok(volume) => volume.is_fenced() || volume.is_superseded(),
            Err(_) => self.followers.has(*id),
        };
        let Some(id) = changed else { return Some(reply) };
        if volumes.moves().was_taken_over(id) {
            return Some(reply.of_the_former_server());
        }
        if !is_in_question(&id) {
            return Some(reply);
        }
        if !volumes.moves().is_fenced(id) {
            return Some(reply.of_the_former_server());
        }
        self.get_or_begin(id, true).lock().hold(reply, self.files.encode())
    }
}
