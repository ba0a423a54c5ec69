//! One volume, wherever it is: what its cache manager calls.
//!
//! Model. A volume has a *place*: the session of a server that has it. A call goes there. Two
//! things end a place:
//! - The server says that it has no such volume, or does not serve it. Then the database is asked
//!   where it is: it was moved, perhaps to another partition of that server. While it serves
//!   nowhere, it is on its way, and the question is put again for a while.
//! - Of a read-only volume, the server is gone (`server_connection.rs`). Then another readable site
//!   is taken, the nearest that shows no older epoch than was seen here (VO-5).
//! - Of a read-only volume, the server cannot read what it has (`Damaged`, `Medium`): another site
//!   may. Where there is none the error stands.
//!
//! One thread finds the next place, and tells the cache manager, which claims there what it holds;
//! everybody else waits, and then calls again what was refused, or was not answered. Only questions
//! are not waited for, so nothing is done twice: a change is repeated after a refusal alone.
//!
//! Who only holds a lock, and calls nothing, must hear of a move too, because a claim may come too
//! late. The server that lets a volume go breaks all promises of it. A break that says of a
//! directory that it changed and of no name may be such a one: then the server is asked whether it
//! has the volume still.
//!
//! A read-only volume's epoch is asked for when the volume is found, and anew after each break,
//! before the next call: breaks come when another release is shown.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use types::{
    BreakItem, BreakReason, Call, Caller, Fault, Name, PartitionNo, ServerId, Time, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

use crate::cell::Cell;
use crate::locate;
use crate::server_connection::ServerConnection;
use crate::session::ChainLink;
use crate::{BreakAck, CallError, Cancel, Events, Remote, Reply};

/// Between two attempts to find a place, at first and at last.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a volume may be nowhere that the database knows: as long as a move holds it. If nobody
/// is at work on it, a moment.
const NOWHERE: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_secs(1);

/// How often a call is put again that was refused as if the volume were not there. Some are
/// although it is: who asks for the root of a volume by a name that it has no more.
const AGAIN_MAX: u32 = 4;

/// A volume that was found. Any number of them share a session.
pub struct RemoteVolume {
    cell: Arc<Cell>,
    id: VolumeId,
    name: Name,
    kind: VolumeKind,
    place: Mutex<Place>,
    /// A search for a place ended.
    settled: Condvar,
    /// What the database said last.
    group: Mutex<Option<VolumeGroup>>,
    /// The server passes descriptors: asked for at every turn.
    local: AtomicBool,
    /// Of a read-only volume: the latest epoch that was seen, and whether there may be a later one.
    epoch: AtomicU64,
    epoch_old: AtomicBool,
    /// A thread asks whether the volume is still there.
    asking: AtomicBool,
    this: Weak<RemoteVolume>,
}

struct Place {
    line: Arc<ServerConnection>,
    /// A thread looks for another one.
    searching: bool,
    /// The partition of its server that it was on: one that is on another now was moved as if it
    /// were to another server.
    partition: PartitionNo,
    /// The last search found that the volume is there.
    there: bool,
    /// Who hears, if somebody does; the session refers to it weakly.
    ear: Option<Arc<VolumeEvents>>,
}

impl RemoteVolume {
    pub(crate) fn new(
        cell: &Arc<Cell>,
        info: VolumeInfo,
        line: Arc<ServerConnection>,
        group: Option<VolumeGroup>,
    ) -> Arc<RemoteVolume> {
        Arc::new_cyclic(|this| RemoteVolume {
            cell: Arc::clone(cell),
            id: info.id,
            name: info.name,
            kind: info.kind,
            local: AtomicBool::new(line.remote.passes_descriptors()),
            place: Mutex::new(Place {
                line,
                searching: false,
                partition: info.partition,
                there: true,
                ear: None,
            }),
            settled: Condvar::new(),
            group: Mutex::new(group),
            epoch: AtomicU64::new(info.epoch),
            epoch_old: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            this: Weak::clone(this),
        })
    }

    /// Its number.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Its name when it was found.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Whether nobody can change it.
    pub fn is_read_only(&self) -> bool {
        self.kind != VolumeKind::ReadWrite
    }

    /// The server that it is asked for at now, as far as it said which one it is.
    pub fn server(&self) -> Option<ServerId> {
        self.here().server.get().copied()
    }

    /// Whether several servers may have it.
    fn has_copies(&self) -> bool {
        self.kind == VolumeKind::ReadOnly
    }

    /// The session to call now. Waits while another place is searched for.
    fn line(&self, cancel: Option<&Cancel>) -> Result<Arc<ServerConnection>, CallError> {
        let mut place = self.place.lock();
        while place.searching {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            self.settled.wait_for(&mut place, PAUSE);
        }
        Ok(Arc::clone(&place.line))
    }

    /// The session, whatever is searched for.
    fn here(&self) -> Arc<ServerConnection> {
        Arc::clone(&self.place.lock().line)
    }

    /// Whether another server may know more than this error says.
    fn is_elsewhere(&self, error: &CallError, gone: &Cancel, cancel: Option<&Cancel>) -> bool {
        match error {
            CallError::Fault(Fault::NoVolume | Fault::Offline) => true,
            error if is_spoilt(error) => self.has_copies(),
            CallError::Cancelled | CallError::Lost => {
                gone.is_cancelled() && !cancel.is_some_and(Cancel::is_cancelled)
            }
            _ => false,
        }
    }

    /// Leaves a place that is no use any more, for `error`: on success there is another one, or the
    /// volume is at the same again.
    fn leave(
        &self,
        from: &Arc<ServerConnection>,
        error: &CallError,
        cancel: Option<&Cancel>,
    ) -> Result<(), CallError> {
        let mut place = self.place.lock();
        if !place.searching {
            if !Arc::ptr_eq(&place.line, from) {
                return Ok(());
            }
            place.searching = true;
            self.start_search(from, error).inspect_err(|_| place.searching = false)?;
        }
        while place.searching {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(CallError::Cancelled);
            }
            self.settled.wait_for(&mut place, PAUSE);
        }
        let nowhere = Arc::ptr_eq(&place.line, from) && (!place.there || is_spoilt(error));
        if nowhere && matches!(error, CallError::Fault(_)) { Err(error.clone()) } else { Ok(()) }
    }

    /// In a thread of its own: who calls may hold what the cache manager needs to move.
    fn start_search(
        &self,
        from: &Arc<ServerConnection>,
        error: &CallError,
    ) -> Result<(), CallError> {
        let Some(this) = self.this.upgrade() else { return Err(CallError::Closed) };
        let (from, refused) = (Arc::clone(from), matches!(error, CallError::Fault(_)));
        let avoided = from.server.get().copied().filter(|_| is_spoilt(error));
        let thread = std::thread::Builder::new().name("cell-move".into());
        let spawned = thread.spawn(move || {
            let to = if this.has_copies() {
                let on = this.place.lock().partition;
                this.next_site(&from, refused, avoided).map(|line| (line, on))
            } else {
                this.next_server()
            };
            let there = to.is_some();
            if let Some(to) = to.filter(|to| !this.is_at(&from, to)) {
                this.move_to(&from, to);
            }
            let mut place = this.place.lock();
            (place.searching, place.there) = (false, there);
            drop(place);
            this.settled.notify_all();
        });
        spawned.map(drop).map_err(|error| {
            CallError::Refused(format!("no thread to find a volume with: {error}"))
        })
    }

    /// Whether that is where it was.
    fn is_at(
        &self,
        from: &Arc<ServerConnection>,
        (to, on): &(Arc<ServerConnection>, PartitionNo),
    ) -> bool {
        Arc::ptr_eq(to, from) && self.place.lock().partition == *on
    }

    /// Where a volume serves that is written, or whose only place is beside that; none: nowhere.
    /// One that is on its way is waited for.
    fn next_server(&self) -> Option<(Arc<ServerConnection>, PartitionNo)> {
        let began = Instant::now();
        loop {
            let mut patience = NOWHERE;
            match self.cell.group(WhichVolume::Id(self.id), None) {
                Ok(group) => {
                    let server = *locate::sites(&group, false).first()?;
                    let moves = group.busy.is_some();
                    *self.group.lock() = Some(group);
                    let line = self.cell.line(server, None);
                    let found = line
                        .and_then(|line| Ok((line.examine(WhichVolume::Id(self.id), None)?, line)));
                    match found.map(|(info, line)| (info.state, (line, info.partition))) {
                        Ok((VolumeState::Online, place)) => return Some(place),
                        Ok((VolumeState::Offline, _)) => return None,
                        Err(CallError::Fault(Fault::NoVolume)) if !moves => patience = MOMENT,
                        _ => {}
                    }
                }
                Err(CallError::Fault(Fault::NoVolume | Fault::Unsupported)) => return None,
                Err(error) => tracing::warn!(%error, "nobody says where a volume is"),
            }
            if began.elapsed() >= patience || self.is_left() {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether nobody but the thread that searches refers to it any more.
    fn is_left(&self) -> bool {
        self.this.strong_count() <= 1
    }

    /// The nearest site that has what was seen here, or something newer. A site that is gone may be
    /// the only one: then it is waited for. `refused`: the server answered, and has it not.
    /// `avoided`: whoever has it there cannot read it.
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
                // What was known before must do.
                Err(_) => {}
            }
            let group = self.group.lock().clone();
            let (mut sites, released) = group.map_or_else(Default::default, |group| {
                (locate::sites(&group, true), group.released_epoch)
            });
            sites.retain(|site| Some(*site) != avoided);
            let least = released.max(self.epoch.load(Ordering::Acquire));
            if let Some((line, info)) =
                self.cell.nearest(&sites, &WhichVolume::Id(self.id), least, None)
            {
                self.epoch.fetch_max(info.epoch, Ordering::AcqRel);
                return Some(line);
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

    /// The number of the volume of its group that is written.
    pub(crate) fn read_write_of_group(&self) -> Option<VolumeId> {
        Some(self.group.lock().as_ref()?.read_write)
    }

    /// Its site may have missed a release: then another one is taken, if there is one.
    pub(crate) fn leave_if_it_lags(&self) {
        let Ok(group) = self.cell.group(WhichVolume::Id(self.id), None) else { return };
        let sites = locate::sites(&group, true);
        *self.group.lock() = Some(group);
        let mut place = self.place.lock();
        let here = place.line.server.get().is_none_or(|server| sites.contains(server));
        if here || sites.is_empty() || place.searching {
            return;
        }
        tracing::info!(volume = self.id.0, "the server of a read-only volume missed a release");
        place.searching = true;
        let from = Arc::clone(&place.line);
        if self.start_search(&from, &CallError::Fault(Fault::NoVolume)).is_err() {
            place.searching = false;
        }
    }

    /// Goes after the volume if its server has it no more. In a thread of its own: who tells of
    /// breaks cannot wait. It looks by itself, and keeps nobody: an operation that comes meanwhile
    /// looks too, as long as operations do, and nothing fails because this found the volume on its
    /// way.
    fn see_whether_it_left(self: Arc<Self>) {
        if self.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let line = self.here();
        let asking = Arc::clone(&self);
        let spawned = std::thread::Builder::new().name("cell-look".into()).spawn(move || {
            let left = match line.examine(WhichVolume::Id(asking.id), None) {
                Ok(info) => info.partition != asking.place.lock().partition,
                Err(error) => matches!(error, CallError::Fault(Fault::NoVolume)),
            };
            if left && let Some(to) = asking.next_server() {
                asking.follow(&line, to);
            }
            asking.asking.store(false, Ordering::Release);
        });
        if let Err(error) = spawned {
            // Whoever calls finds out.
            tracing::error!(%error, "no thread to see where a volume is");
            self.asking.store(false, Ordering::Release);
        }
    }

    /// The volume is there now, unless somebody was quicker.
    fn follow(&self, from: &Arc<ServerConnection>, to: (Arc<ServerConnection>, PartitionNo)) {
        let mut place = self.place.lock();
        let is_there = Arc::ptr_eq(&to.0, from) && place.partition == to.1;
        if place.searching || !Arc::ptr_eq(&place.line, from) || is_there {
            return;
        }
        place.searching = true;
        drop(place);
        self.move_to(from, to);
        let mut place = self.place.lock();
        (place.searching, place.there) = (false, true);
        drop(place);
        self.settled.notify_all();
    }

    fn move_to(
        &self,
        from: &Arc<ServerConnection>,
        (to, on): (Arc<ServerConnection>, PartitionNo),
    ) {
        tracing::info!(volume = self.id.0, name = %String::from_utf8_lossy(self.name.as_bytes()), "a volume is asked for elsewhere now");
        self.local.store(to.remote.passes_descriptors(), Ordering::Release);
        let ear = {
            let mut place = self.place.lock();
            place.partition = on;
            place.ear.clone()
        };
        let Some(ear) = ear else {
            self.place.lock().line = to;
            return;
        };
        if Arc::ptr_eq(from, &to) {
            // To another partition: the session is the same, and so is what it hears.
            return ear.inner.on_moved(&*to.remote);
        }
        ear.end();
        from.ears.leave(&(Arc::clone(&ear) as Arc<dyn Events>));
        let next = Arc::new(VolumeEvents::new(&self.this, &ear.inner));
        {
            let mut place = self.place.lock();
            (place.line, place.ear) = (Arc::clone(&to), Some(Arc::clone(&next)));
        }
        ear.inner.on_moved(&*to.remote);
        to.ears.join(self.id, &(next as Arc<dyn Events>));
    }

    /// After a break of a read-only volume: which epoch it shows now, before anything of it is
    /// seen.
    fn learn_epoch(
        &self,
        line: &ServerConnection,
        cancel: Option<&Cancel>,
    ) -> Result<(), CallError> {
        if !self.epoch_old.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        match line.examine(WhichVolume::Id(self.id), cancel) {
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

    /// Calls where the volume is, until there is an answer from there.
    fn call_there(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
        how: impl Fn(&dyn Remote, &Caller, Call, Option<&Cancel>) -> Result<Reply, CallError>,
    ) -> Result<Reply, CallError> {
        if !self.cell.has_others() {
            return how(&*self.here().remote, caller, call, cancel);
        }
        let mut again = 0;
        loop {
            let line = self.line(cancel)?;
            let (gone, result);
            if self.has_copies() {
                gone = line.gone();
                result = self.learn_epoch(&line, cancel).and_then(|()| {
                    either(&gone, cancel, |either| {
                        how(&*line.remote, caller, call.clone(), Some(either))
                    })
                });
            } else {
                gone = Cancel::new();
                result = how(&*line.remote, caller, call.clone(), cancel);
            }
            match result {
                Err(error) if self.is_elsewhere(&error, &gone, cancel) && again < AGAIN_MAX => {
                    self.leave(&line, &error, cancel)?;
                    again += u32::from(matches!(error, CallError::Fault(_)));
                }
                result => return result,
            }
        }
    }

    /// A chain, of which what was refused because the volume is not there any more is called again
    /// where it is.
    fn chain_there(
        &self,
        caller: &Caller,
        calls: &[Call],
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        let (mut done, mut link, mut again) = (0, ChainLink::default(), 0);
        loop {
            let line = match self.line(None) {
                Ok(line) => line,
                Err(error) => {
                    return (done..calls.len()).for_each(|at| take(at, Err(error.clone())));
                }
            };
            let mut rest = calls[done..].to_vec();
            link.put_in(&mut rest);
            let mut refused = None;
            let before = done;
            let gone = if self.has_copies() { line.gone() } else { Cancel::new() };
            let mut sieve = |at: usize, result: Result<Reply, CallError>| match result {
                _ if refused.is_some() => {}
                Err(error) if again < AGAIN_MAX && self.is_elsewhere(&error, &gone, None) => {
                    refused = Some(error);
                }
                result => {
                    link.follow(&result);
                    done = before + at + 1;
                    take(before + at, result);
                }
            };
            if self.has_copies() {
                match self.learn_epoch(&line, None) {
                    Ok(()) => line.remote.chain_each_until(caller, rest, &gone, &mut sieve),
                    Err(error) => sieve(0, Err(error)),
                }
            } else {
                line.remote.chain_each(caller, rest, &mut sieve);
            }
            let Some(error) = refused else { return };
            again += u32::from(matches!(error, CallError::Fault(_)));
            if let Err(error) = self.leave(&line, &error, None) {
                return (done..calls.len()).for_each(|at| take(at, Err(error.clone())));
            }
        }
    }
}

/// Whether the server has the volume and cannot read it.
fn is_spoilt(error: &CallError) -> bool {
    matches!(error, CallError::Fault(Fault::Damaged | Fault::Medium))
}

/// With one that fires when either of these does.
fn either<R>(gone: &Cancel, cancel: Option<&Cancel>, run: impl FnOnce(&Cancel) -> R) -> R {
    let Some(cancel) = cancel else { return run(gone) };
    let both = Cancel::new();
    let _listening = [gone, cancel].map(|one| {
        let both = both.clone();
        one.on_cancel(move || both.cancel())
    });
    run(&both)
}

/// What is claimed when a server has restarted goes where the volume is, though others wait.
fn claims(calls: &[Call]) -> bool {
    matches!(calls.first(), Some(Call::Delegated { .. }))
}

impl Remote for RemoteVolume {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.call_there(caller, call, cancel, |remote, caller, call, cancel| {
            remote.call(caller, call, cancel)
        })
    }

    fn call_urgently(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.call_there(caller, call, cancel, |remote, caller, call, cancel| {
            remote.call_urgently(caller, call, cancel)
        })
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        if !self.cell.has_others() || claims(&calls) {
            return self.here().remote.chain(caller, calls);
        }
        let mut results = Vec::with_capacity(calls.len());
        self.chain_there(caller, &calls, &mut |_, result| results.push(result));
        results
    }

    fn chain_each(
        &self,
        caller: &Caller,
        calls: Vec<Call>,
        take: &mut dyn FnMut(usize, Result<Reply, CallError>),
    ) {
        if !self.cell.has_others() || claims(&calls) {
            return self.here().remote.chain_each(caller, calls, take);
        }
        self.chain_there(caller, &calls, take);
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        let ear = Arc::new(VolumeEvents::new(&self.this, &events));
        let line = {
            let mut place = self.place.lock();
            place.ear = Some(Arc::clone(&ear));
            Arc::clone(&place.line)
        };
        line.ears.join(self.id, &(ear as Arc<dyn Events>));
        if self.has_copies() && self.cell.has_others() {
            self.cell.watch(&self.this);
        }
    }

    fn passes_descriptors(&self) -> bool {
        self.local.load(Ordering::Acquire)
    }

    fn stands(&self) -> bool {
        self.here().remote.stands()
    }
}

/// Hears of one place, as long as the volume is there: a renewal of a session that was left says
/// nothing about the next one.
struct VolumeEvents {
    volume: Weak<RemoteVolume>,
    inner: Arc<dyn Events>,
    here: RwLock<bool>,
}

impl VolumeEvents {
    fn new(volume: &Weak<RemoteVolume>, inner: &Arc<dyn Events>) -> VolumeEvents {
        VolumeEvents {
            volume: Weak::clone(volume),
            inner: Arc::clone(inner),
            here: RwLock::new(true),
        }
    }

    fn end(&self) {
        *self.here.write() = false;
    }
}

impl Events for VolumeEvents {
    fn on_break(&self, items: &[BreakItem], heard: BreakAck) {
        let volume = self.volume.upgrade();
        if let Some(volume) = volume.as_ref().filter(|volume| volume.has_copies()) {
            volume.epoch_old.store(true, Ordering::Release);
        }
        self.inner.on_break(items, heard);
        let unnamed = |item: &BreakItem| {
            item.fid.vnode.is_directory() && item.reason == BreakReason::Data && item.name.is_none()
        };
        if let Some(volume) =
            volume.filter(|volume| !volume.has_copies() && volume.cell.has_others())
            && items.iter().any(unnamed)
        {
            volume.see_whether_it_left();
        }
    }

    fn on_renewed(&self, sent_at: Time) {
        let here = self.here.read();
        if *here {
            self.inner.on_renewed(sent_at);
        }
    }

    fn on_lease_lost(&self) {
        let here = self.here.read();
        if *here {
            self.inner.on_lease_lost();
        }
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        let here = *self.here.read();
        if here {
            self.inner.on_server_restarted(reclaim);
        }
    }
}
