//! One volume, wherever it is: the service that its cache manager calls.
//!
//! Model. A volume has a *place*: the session of a server that has it. A call goes there. Three
//! things end a place:
//! - The server answers that it has no such volume, or does not serve it. Then the client asks the
//!   cell database: the volume was moved, perhaps to another partition of that server. While no
//!   site serves it, the move is under way, and the client asks again for a while.
//! - The server of a read-only volume is gone (`server_connection.rs`). Then the client takes the
//!   nearest other readable site that shows no older epoch than was seen here (VO-5).
//! - The server of a read-write volume is gone, and a copy of the volume at another server *took
//!   over*: the database names that server, and the volume there is of a later generation. While
//!   calls wait for the gone server the client asks now and then. A *standby* has what the lost
//!   server acknowledged, and the replies (`inherit.rs`): a change under way gets its reply there,
//!   or is made again (SB-5), and the volume is followed as one that moved. Otherwise all that was
//!   acknowledged since the copy was made is lost, and so are calls under way: they are repeated.
//! - The server of a read-only volume cannot read what it has (`Damaged`, `Medium`): another site
//!   may. If there is none the error stands.
//!
//! One thread finds the next place and informs the cache manager, which reclaims there; all other
//! threads wait, and then repeat calls that were refused or not answered (`volume/calls.rs`). A
//! change is repeated after a refusal, or when the server that may have executed it is lost with
//! all its effects; so nothing is done twice.
//!
//! A client that holds a lock but makes no calls must still learn that its volume moved, because a
//! reclaim may come too late. The server that gives a volume up breaks all promises of it. A break
//! that reports a change of a directory without a name may be such a one: then the client asks the
//! server whether it still has the volume.
//!
//! The client asks for a read-only volume's epoch when it finds the volume, and again after each
//! break, before the next call: breaks come when another release is shown.

mod calls;
mod events;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mem::arena::Buffer;
use parking_lot::{Condvar, Mutex};
use types::{
    Call, Caller, Fault, Name, PartitionNo, ServerId, VolumeGroup, VolumeId, VolumeInfo,
    VolumeKind, VolumeState, WhichVolume, generation,
};

use self::calls::claims;
use self::events::VolumeEvents;
use super::Cell;
use super::inherit::{Heritage, compare, knows_replies, report, was_standby};
use super::replica_watch::ReplicaReader;
use super::server_connection::ServerConnection;
use super::sites::sites;
use crate::{
    Association, CallError, Cancel, CompletionGroup, DoneChange, Events, Remote, Reply, Submitted,
};

/// The pause between two attempts to find a place, at first and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the database may know no place of a volume: as long as a move holds it. If no move is
/// under way, a moment.
const NOWHERE: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_secs(1);
/// How long a volume may arrive, or be offline in a move: a copy that took over serves once no
/// client can trust the former server, which takes a freeze, a lease and some seconds.
const ARRIVES: Duration = Duration::from_secs(60);
/// How often and how long the client asks the server that took over whether it serves the volume.
const SERVES_POLL: Duration = Duration::from_millis(100);
const SERVES_WITHIN: Duration = Duration::from_secs(10);

/// A volume that was found. Any number of them share a session.
pub struct RemoteVolume {
    cell: Arc<Cell>,
    id: VolumeId,
    name: Name,
    kind: VolumeKind,
    place: Mutex<Place>,
    /// Notified when a search for a place ended.
    search_ended: Condvar,
    /// The last answer of the cell database.
    group: Mutex<Option<VolumeGroup>>,
    /// Does the server pass descriptors? Cached because each operation asks.
    local: AtomicBool,
    /// Of a read-only volume: the latest epoch that was seen, and whether there may be a later one.
    epoch: AtomicU64,
    epoch_old: AtomicBool,
    /// A thread asks whether the server still has the volume.
    asking: AtomicBool,
    /// Calls under way.
    waiting: AtomicU64,
    this: Weak<RemoteVolume>,
}

struct Place {
    connection: Arc<ServerConnection>,
    /// A thread searches for another place.
    searching: bool,
    /// Fires when a copy elsewhere took over from the volume here.
    lost: Cancel,
    /// The volume's partition on its server: a change of it counts as a move to another server.
    partition: PartitionNo,
    /// The generation of the read-write volume ([`generation`]).
    generation: u64,
    /// The last search found the volume.
    there: bool,
    /// Counts the places that it had ([`Association`]).
    places: u64,
    /// The sink of events, if one is set; the session refers to it weakly.
    sink: Option<Arc<VolumeEvents>>,
}

impl Place {
    /// Is that the place where it was? A volume that comes back to its server after a copy took
    /// over is of a later generation: its server has no handles and locks of it any more.
    fn is(&self, to: &FoundPlace) -> bool {
        Arc::ptr_eq(&to.connection, &self.connection)
            && self.partition == to.partition
            && self.generation >= to.generation
    }
}

/// Where a search found the volume.
struct FoundPlace {
    connection: Arc<ServerConnection>,
    partition: PartitionNo,
    generation: u64,
    /// The records say that a standby took over there.
    was_standby: bool,
    /// It serves once no client can trust the former server any more, and executes claims alone
    /// until then.
    takes_over: bool,
}

impl FoundPlace {
    fn of(connection: Arc<ServerConnection>, info: &VolumeInfo) -> FoundPlace {
        let generation = generation(info.epoch);
        FoundPlace {
            connection,
            partition: info.partition,
            generation,
            was_standby: false,
            takes_over: info.state == VolumeState::TakingOver,
        }
    }
}

impl RemoteVolume {
    pub(crate) fn new(
        cell: &Arc<Cell>,
        info: VolumeInfo,
        connection: Arc<ServerConnection>,
        group: Option<VolumeGroup>,
    ) -> Arc<RemoteVolume> {
        Arc::new_cyclic(|this| RemoteVolume {
            cell: Arc::clone(cell),
            id: info.id,
            name: info.name,
            kind: info.kind,
            local: AtomicBool::new(connection.remote.passes_descriptors()),
            place: Mutex::new(Place {
                connection,
                searching: false,
                lost: Cancel::new(),
                partition: info.partition,
                generation: generation(info.epoch),
                there: true,
                places: 1,
                sink: None,
            }),
            search_ended: Condvar::new(),
            group: Mutex::new(group),
            epoch: AtomicU64::new(info.epoch),
            epoch_old: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            this: Weak::clone(this),
        })
    }

    /// Its number in the cell.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Its name when it was found.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Where that server is, for people.
    pub fn address(&self) -> String {
        self.here().remote.address()
    }

    /// Can no client change it?
    pub fn is_read_only(&self) -> bool {
        self.kind != VolumeKind::ReadWrite
    }

    /// The server that calls go to now, if it has reported its id.
    pub fn server(&self) -> Option<ServerId> {
        self.here().server.get().copied()
    }

    /// Was it removed? Its server has no such volume, and the cell database has no place of it. A
    /// volume whose partition is only missing has one.
    pub fn is_removed(&self, cancel: Option<&Cancel>) -> bool {
        let which = || WhichVolume::Id(self.id);
        let examined = self.here().examine(which(), cancel);
        if !matches!(examined, Err(CallError::Fault(Fault::NoVolume))) {
            return false;
        }
        match self.cell.group(which(), cancel) {
            Ok(group) => sites(&group, self.has_copies()).is_empty(),
            // A cell of one server may have no database.
            Err(error) => {
                matches!(error, CallError::Fault(Fault::NoVolume | Fault::Unsupported))
            }
        }
    }

    /// May several servers have it?
    fn has_copies(&self) -> bool {
        self.kind == VolumeKind::ReadOnly
    }

    /// The session to call now, what fires when another place must be asked instead, and the
    /// generation of the volume there. Waits while a search for another place runs.
    fn connection(
        &self,
        cancel: Option<&Cancel>,
    ) -> Result<(Arc<ServerConnection>, Cancel, u64), CallError> {
        let mut place = self.place.lock();
        while place.searching {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            self.search_ended.wait_for(&mut place, PAUSE);
        }
        Ok(self.place_now(&place))
    }

    fn place_now(&self, place: &Place) -> (Arc<ServerConnection>, Cancel, u64) {
        let gone = if self.has_copies() { place.connection.gone() } else { place.lost.clone() };
        (Arc::clone(&place.connection), gone, place.generation)
    }

    /// The current session, even while a search runs.
    fn here(&self) -> Arc<ServerConnection> {
        Arc::clone(&self.place.lock().connection)
    }

    /// May another server succeed where this error came?
    fn is_elsewhere(&self, error: &CallError, gone: &Cancel, cancel: Option<&Cancel>) -> bool {
        match error {
            CallError::Fault(Fault::NoVolume | Fault::Offline) => true,
            error if cannot_read(error) => self.has_copies(),
            CallError::Cancelled | CallError::Lost => {
                gone.is_cancelled() && !cancel.is_some_and(Cancel::is_cancelled)
            }
            _ => false,
        }
    }

    /// Leaves a place after `error`: on success there is another place, or the volume is at the
    /// same place again.
    fn leave(
        &self,
        from: &Arc<ServerConnection>,
        error: &CallError,
        cancel: Option<&Cancel>,
    ) -> Result<(), CallError> {
        let mut place = self.place.lock();
        if !place.searching {
            if !Arc::ptr_eq(&place.connection, from) {
                return Ok(());
            }
            place.searching = true;
            self.start_search(from, error).inspect_err(|_| place.searching = false)?;
        }
        while place.searching {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            self.search_ended.wait_for(&mut place, PAUSE);
        }
        let nowhere = Arc::ptr_eq(&place.connection, from) && (!place.there || cannot_read(error));
        if nowhere && matches!(error, CallError::Fault(_)) { Err(error.clone()) } else { Ok(()) }
    }

    /// The search runs in its own thread: the caller may hold locks that the cache manager needs to
    /// move.
    fn start_search(
        &self,
        from: &Arc<ServerConnection>,
        error: &CallError,
    ) -> Result<(), CallError> {
        let Some(this) = self.this.upgrade() else { return Err(CallError::Closed) };
        let (from, refused) = (Arc::clone(from), matches!(error, CallError::Fault(_)));
        let avoided = from.server.get().copied().filter(|_| cannot_read(error));
        let thread = std::thread::Builder::new().name("cell-move".into());
        let spawned = thread.spawn(move || {
            let to = if this.has_copies() {
                let found = this.next_site(&from, refused, avoided);
                let (partition, generation) = {
                    let place = this.place.lock();
                    (place.partition, place.generation)
                };
                found.map(|connection| FoundPlace {
                    connection,
                    partition,
                    generation,
                    was_standby: false,
                    takes_over: false,
                })
            } else {
                this.next_server(&from)
            };
            let there = to.is_some();
            if let Some(to) = to.filter(|to| !this.place.lock().is(to)) {
                this.move_to(&from, to);
            }
            let mut place = this.place.lock();
            (place.searching, place.there) = (false, there);
            drop(place);
            this.search_ended.notify_all();
        });
        spawned.map(drop).map_err(|error| {
            CallError::Refused(format!("no thread to find a volume with: {error}"))
        })
    }

    /// The server and partition that serve a volume which is written, or which has no other place.
    /// `None`: there is none. Waits for a move that is under way.
    fn next_server(&self, from: &ServerConnection) -> Option<FoundPlace> {
        let began = Instant::now();
        let former = self.group.lock().clone();
        loop {
            let mut patience = NOWHERE;
            match self.cell.group(WhichVolume::Id(self.id), None) {
                Ok(group) => {
                    let server = *sites(&group, false).first()?;
                    let moves = group.busy.is_some();
                    let from = from.server.get().copied();
                    let was_standby = was_standby(former.as_ref(), &group, from, server);
                    *self.group.lock() = Some(group);
                    let connection = self.cell.connection(server, None);
                    let found = connection.and_then(|connection| {
                        Ok((connection.examine(WhichVolume::Id(self.id), None)?, connection))
                    });
                    match found.map(|(info, to)| (info.state, FoundPlace::of(to, &info))) {
                        Ok((VolumeState::Online | VolumeState::TakingOver, place)) => {
                            return Some(FoundPlace { was_standby, ..place });
                        }
                        // At the end of a move a server of AFS has it offline until it has gone.
                        Ok((VolumeState::Offline, _)) if moves => patience = ARRIVES,
                        Ok((VolumeState::Offline, _)) => return None,
                        Ok((VolumeState::Arriving, _)) => patience = ARRIVES,
                        Err(CallError::Fault(Fault::NoVolume)) if !moves && !was_standby => {
                            patience = MOMENT;
                        }
                        _ => {}
                    }
                }
                Err(CallError::Fault(Fault::NoVolume | Fault::Unsupported)) => return None,
                Err(error) => tracing::warn!(%error, "no server knows where a volume is"),
            }
            if began.elapsed() >= patience || self.is_left() {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does only the searching thread still refer to it?
    fn is_left(&self) -> bool {
        self.this.strong_count() <= 1
    }

    /// The nearest site that has the epoch that was seen here, or a newer one. A site that is gone
    /// may be the only one: then this waits for it. `refused`: the server answered that it does not
    /// have the volume. `avoided`: the server cannot read its copy.
    fn next_site(
        &self,
        from: &Arc<ServerConnection>,
        refused: bool,
        avoided: Option<ServerId>,
    ) -> Option<Arc<ServerConnection>> {
        let (end, mut pause) = (Instant::now() + MOMENT, PAUSE);
        loop {
            match self.cell.group(WhichVolume::Id(self.id), None) {
                Ok(group) => *self.group.lock() = Some(group),
                Err(CallError::Fault(Fault::NoVolume | Fault::Unsupported)) if refused => {
                    return None;
                }
                // The last known group must do.
                Err(_) => {}
            }
            let group = self.group.lock().clone();
            let (mut there, released) = group
                .map_or_else(Default::default, |group| (sites(&group, true), group.released_epoch));
            there.retain(|site| Some(*site) != avoided);
            let least = released.max(self.epoch.load(Ordering::Acquire));
            if let Some((connection, info)) =
                self.cell.nearest(&there, &WhichVolume::Id(self.id), least, None)
            {
                debug_assert!(info.epoch >= least, "VO-5: no older epoch is read");
                self.epoch.fetch_max(info.epoch, Ordering::AcqRel);
                return Some(connection);
            }
            let over = avoided.is_some()
                || if refused { Instant::now() >= end } else { from.remote.stands() };
            if over || self.is_left() {
                return None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Follows the volume if its server no longer has it. Runs in its own thread, for the thread
    /// that delivers breaks cannot wait. It blocks no operation: one that comes meanwhile searches
    /// by itself, and none fails because this found the volume under way.
    fn check_whether_it_left(self: Arc<Self>) {
        if self.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let connection = self.here();
        let asking = Arc::clone(&self);
        let spawned = std::thread::Builder::new().name("cell-look".into()).spawn(move || {
            let left = match connection.examine(WhichVolume::Id(asking.id), None) {
                Ok(info) => {
                    let place = asking.place.lock();
                    info.state == VolumeState::Superseded
                        || info.partition != place.partition
                        || generation(info.epoch) > place.generation
                }
                Err(error) => matches!(error, CallError::Fault(Fault::NoVolume)),
            };
            if left && let Some(to) = asking.next_server(&connection) {
                asking.follow(&connection, to);
            }
            asking.asking.store(false, Ordering::Release);
        });
        if let Err(error) = spawned {
            // The next call finds out.
            tracing::error!(%error, "no thread to check whether a volume moved");
            self.asking.store(false, Ordering::Release);
        }
    }

    /// Sets the new place, unless another thread did so before.
    fn follow(&self, from: &Arc<ServerConnection>, to: FoundPlace) {
        let mut place = self.place.lock();
        if place.searching || !Arc::ptr_eq(&place.connection, from) || place.is(&to) {
            return;
        }
        place.searching = true;
        drop(place);
        self.move_to(from, to);
        let mut place = self.place.lock();
        debug_assert!(place.searching, "VO-6: the thread that began a search ends it");
        (place.searching, place.there) = (false, true);
        drop(place);
        self.search_ended.notify_all();
    }

    fn move_to(&self, from: &Arc<ServerConnection>, to: FoundPlace) {
        let FoundPlace { connection: to, partition, generation, was_standby, takes_over } = to;
        debug_assert!(self.place.lock().searching, "VO-6: one thread finds the next place");
        let name = String::from_utf8_lossy(self.name.as_bytes());
        tracing::info!(volume = self.id.0, %name, "calls for a volume go to another place now");
        self.local.store(to.remote.passes_descriptors(), Ordering::Release);
        let (taken_over, sink) = {
            let mut place = self.place.lock();
            let taken_over = generation > place.generation;
            (place.partition, place.generation) = (partition, generation.max(place.generation));
            place.places += 1;
            (taken_over, place.sink.clone())
        };
        let mut heritage = Heritage::Whole;
        if taken_over {
            // Each change has an answer that the comparison takes into account, or none. A volume
            // that came back to its server answers for itself: that refuses what it did before.
            if !Arc::ptr_eq(from, &to) {
                let lost = std::mem::take(&mut self.place.lock().lost);
                lost.cancel();
                from.remote.withdraw_changes(self.id);
            }
            let changes = from.remote.take_changes(self.id);
            heritage = self.heritage(&changes, &to, was_standby);
            match &heritage {
                Heritage::Whole => tracing::warn!(
                    volume = self.id.0,
                    %name,
                    "a standby of a volume took over: it has all that was acknowledged"
                ),
                Heritage::Lacks(fids) => report(self.id, &name, fids),
                Heritage::Unknown => tracing::warn!(
                    volume = self.id.0,
                    %name,
                    "the server of a volume is lost, and a copy took over: changes since that copy \
                     was made are lost"
                ),
            }
        }
        let report = |sink: &dyn Events, reclaim: &dyn Remote| match &heritage {
            Heritage::Whole => sink.on_moved(reclaim),
            Heritage::Unknown => sink.on_taken_over(reclaim),
            Heritage::Lacks(fids) => {
                sink.on_taken_over(reclaim);
                sink.on_changes_lost(fids);
            }
        };
        let Some(sink) = sink else {
            self.place.lock().connection = to;
            return;
        };
        if Arc::ptr_eq(from, &to) {
            // To another partition, or back: session and events stay the same.
            report(&*sink.inner, &*to.remote);
            return self.wait_until_it_serves(&to, takes_over);
        }
        sink.end();
        from.sinks.leave(&(Arc::clone(&sink) as Arc<dyn Events>));
        // Breaks must arrive from the first answer of the reclaim on (CB-1); the new lease counts
        // when the reclaim is over.
        let next = Arc::new(VolumeEvents::new(&self.this, &sink.inner, false));
        to.sinks.join(self.id, &(Arc::clone(&next) as Arc<dyn Events>));
        {
            let mut place = self.place.lock();
            (place.connection, place.sink) = (Arc::clone(&to), Some(Arc::clone(&next)));
        }
        report(&*sink.inner, &*to.remote);
        self.wait_until_it_serves(&to, takes_over);
        next.begin();
        to.sinks.report_lease(&*next);
    }

    /// While the volume takes over it executes the claims that were just made, and refuses all
    /// else. A server that cannot be asked is left by the next call.
    fn wait_until_it_serves(&self, to: &ServerConnection, takes_over: bool) {
        let (began, mut state) = (Instant::now(), Ok(VolumeState::TakingOver));
        while takes_over
            && matches!(state, Ok(VolumeState::TakingOver))
            && began.elapsed() < ARRIVES
            && !self.is_left()
        {
            std::thread::sleep(SERVES_POLL);
            state = to.examine(WhichVolume::Id(self.id), None).map(|info| info.state);
        }
    }

    /// How much the place that took over has of these changes, which the former one acknowledged.
    fn heritage(
        &self,
        changes: &[DoneChange],
        to: &ServerConnection,
        was_standby: bool,
    ) -> Heritage {
        if !was_standby {
            // It has no change since the copy was made, and knows no reply.
            return Heritage::Unknown;
        }
        match compare(to, self.id, changes) {
            // The base of the standby has all of them, or there are none.
            Heritage::Unknown if knows_replies(to, self.id) => Heritage::Whole,
            heritage => heritage,
        }
    }

    /// The server does not answer: follows the volume if a copy took over elsewhere. Only for calls
    /// that wait: the next one finds out by itself.
    fn look_for_successor(self: Arc<Self>) {
        if self.kind != VolumeKind::ReadWrite || self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let (from, generation) = {
            let place = self.place.lock();
            (Arc::clone(&place.connection), place.generation)
        };
        let which = || WhichVolume::Id(self.id);
        let Ok(group) = self.cell.group(which(), None) else { return };
        let site = sites(&group, false).first().copied();
        let Some(server) = site.filter(|site| from.server.get() != Some(site)) else { return };
        let former = self.group.lock().replace(group.clone());
        if self.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let was_standby = was_standby(former.as_ref(), &group, from.server.get().copied(), server);
        // In a thread of its own: it asks the other server until that serves the volume, and the
        // claims wait for it.
        let following = Arc::clone(&self);
        let thread = std::thread::Builder::new().name("cell-move".into());
        let spawned = thread.spawn(move || {
            following.await_successor(&from, server, generation, was_standby);
            following.asking.store(false, Ordering::Release);
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to follow a volume");
            self.asking.store(false, Ordering::Release);
        }
    }

    /// Follows the volume to the server that the database names, once it serves there.
    fn await_successor(
        &self,
        from: &Arc<ServerConnection>,
        server: ServerId,
        generation: u64,
        was_standby: bool,
    ) {
        let until = Instant::now() + SERVES_WITHIN;
        let which = || WhichVolume::Id(self.id);
        while Instant::now() < until && !from.remote.stands() && !self.is_left() {
            let found = self.cell.connection(server, None).and_then(|connection| {
                let info = connection.examine(which(), None)?;
                Ok((info.state, FoundPlace::of(connection, &info)))
            });
            match found {
                Ok((VolumeState::Online | VolumeState::TakingOver, to))
                    if to.generation > generation =>
                {
                    return self.follow(from, FoundPlace { was_standby, ..to });
                }
                Ok((VolumeState::Arriving, _)) => {}
                // Another server may have it by now: the database says.
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(volume = self.id.0, %error, "not there yet");
                    return;
                }
            }
            std::thread::sleep(SERVES_POLL);
        }
    }

    /// After a break of a read-only volume: learns which epoch it shows now, before any of it is
    /// read.
    fn learn_epoch(
        &self,
        connection: &ServerConnection,
        cancel: Option<&Cancel>,
    ) -> Result<(), CallError> {
        if !self.epoch_old.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        match connection.examine(WhichVolume::Id(self.id), cancel) {
            Ok(info) => {
                self.epoch.fetch_max(info.epoch, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                self.epoch_old.store(true, Ordering::Release);
                Err(error)
            }
        }
    }
}

impl ReplicaReader for RemoteVolume {
    fn read_write_of_group(&self) -> Option<VolumeId> {
        Some(self.group.lock().as_ref()?.read_write)
    }

    fn leave_if_it_lags(&self) {
        let Ok(group) = self.cell.group(WhichVolume::Id(self.id), None) else { return };
        let there = sites(&group, true);
        *self.group.lock() = Some(group);
        let mut place = self.place.lock();
        let here = place.connection.server.get().is_none_or(|server| there.contains(server));
        if here || there.is_empty() || place.searching {
            return;
        }
        tracing::info!(volume = self.id.0, "the server of a read-only volume missed a release");
        place.searching = true;
        let from = Arc::clone(&place.connection);
        if self.start_search(&from, &CallError::Fault(Fault::NoVolume)).is_err() {
            place.searching = false;
        }
    }
}

/// Does the server have the volume but fail to read it?
fn cannot_read(error: &CallError) -> bool {
    matches!(error, CallError::Fault(Fault::Damaged | Fault::Medium))
}

impl Remote for RemoteVolume {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.call_there(caller, call, cancel, |remote, caller, call, cancel, at| {
            remote.call_at(caller, call, cancel, at)
        })
    }

    fn call_urgently(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        // A question.
        self.call_there(caller, call, cancel, |remote, caller, call, cancel, _| {
            remote.call_urgently(caller, call, cancel)
        })
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        let mut results = Vec::with_capacity(calls.len());
        self.chain_each(caller, calls, &mut |_, result| results.push(result));
        results
    }

    fn chain_each(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        if !self.cell.has_others() {
            let (connection, lost) = {
                let place = self.place.lock();
                (Arc::clone(&place.connection), place.lost.clone())
            };
            self.waiting.fetch_add(1, Ordering::AcqRel);
            connection.remote.chain_each_until(caller, calls, &lost, take);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let claims = claims(&calls);
        self.chain_there(caller, &calls, claims, take);
    }

    /// At the volume's present place alone: an operation that is refused there, since the volume is
    /// elsewhere, completes with that refusal. The caller makes it again by [`Remote::call`].
    fn submit(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        let (connection, ..) = self.connection(None)?;
        connection.remote.submit(caller, call, memory, into)
    }

    fn submit_in_session(
        &self,
        caller: &Caller,
        call: Call,
        memory: Option<&Arc<Buffer>>,
        into: (&Arc<CompletionGroup>, u64),
    ) -> Result<Submitted, CallError> {
        let (connection, ..) = self.connection(None)?;
        connection.remote.submit_in_session(caller, call, memory, into)
    }

    fn wait_for(&self, group: &Arc<CompletionGroup>, least: usize, until: Option<Instant>) {
        self.here().remote.wait_for(group, least, until);
    }

    fn cancel_submitted(&self, submitted: Submitted) {
        self.here().remote.cancel_submitted(submitted);
    }

    fn look_into_lane(&self) {
        self.here().remote.look_into_lane();
    }

    fn has_lane(&self) -> bool {
        self.here().remote.has_lane()
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        let sink = Arc::new(VolumeEvents::new(&self.this, &events, true));
        let connection = {
            let mut place = self.place.lock();
            place.sink = Some(Arc::clone(&sink));
            Arc::clone(&place.connection)
        };
        connection.sinks.join(self.id, &(Arc::clone(&sink) as Arc<dyn Events>));
        connection.sinks.report_lease(&*sink);
        if self.has_copies() && self.cell.has_others() {
            self.cell.watch(&(Weak::clone(&self.this) as _));
        }
    }

    fn passes_descriptors(&self) -> bool {
        self.local.load(Ordering::Acquire)
    }

    fn stands(&self) -> bool {
        self.here().remote.stands()
    }

    fn association(&self) -> Association {
        let place = self.place.lock();
        Association { places: place.places, ..place.connection.remote.association() }
    }

    fn is_resumed(&self) -> bool {
        self.here().remote.is_resumed()
    }

    fn take_orphan(&self, caller: &Caller, call: &Call) -> Option<Result<Reply, CallError>> {
        self.cell.take_orphan(caller, call)
    }
}
