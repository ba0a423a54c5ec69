//! The volumes of one mount: each has a cache manager of its own, on the session of its server.
//! They share the disk cache and limits of memory (`budget.rs`).
//!
//! A volume has one cache manager, because two would each cache what is changed through the other.
//! A closed volume sends its changes in the background and is not opened again before that is done.
//!
//! Other cells are those that mount points lead to (`#cell:volume`). Numbers of volumes, files and
//! servers mean nothing in another cell, so each cell has sessions, cache managers and a disk cache
//! of its own: volumes of two cells never meet in one table. The client connects to a cell at its
//! first use. A cell that cannot be reached is not tried again for a while, so that a listing of
//! many cells does not wait for each.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use client::{Cancel, Cell, EffectiveIdentity, Remote, RemoteVolume, Reply, TokenWallet};
use parking_lot::{Condvar, Mutex};
use types::{
    Answer, AuthCall, Call, Caller, Fault, Fid, MountPoint, Name, RequestIdentity, VolumeId,
};

use crate::base::{Error, POLL_INTERVAL, RequestContext, VenusConfig};
use crate::data::MountShared;
use crate::ops::Venus;

/// The user number `nobody`, which has no special rights on any machine.
const NOBODY_ID: u32 = 65534;

const READ_ONLY: &[u8] = b".readonly";

/// See the head of the file.
pub struct Volumes {
    cell: Arc<Cell>,
    config: VenusConfig,
    common: Arc<MountShared>,
    open: Mutex<HashMap<VolumeId, Opened>>,
    /// Signals that a volume is closed.
    closed: Condvar,
    /// Other cells, if these are the volumes of the first.
    neighbours: OnceLock<Arc<Neighbours>>,
    /// The other cells, if these volumes are not of the first.
    beside: OnceLock<Weak<Neighbours>>,
    /// Whether the cell accepts this machine's statement of a caller's identity; set by a server's
    /// answer.
    counts: OnceLock<bool>,
}

/// A volume with changes that its server does not have yet, or may lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedVolume {
    /// Its name.
    pub volume: Name,
    /// Where its server is.
    pub server: String,
    /// Files with written bytes, and how many.
    pub files: Vec<(Fid, u64)>,
    /// Changes of names and status.
    pub changes: u64,
}

impl UnsavedVolume {
    fn of(volume: &RemoteVolume, venus: &Venus) -> Option<Self> {
        let (files, changes) = venus.control().unsaved();
        (!files.is_empty() || changes > 0).then(|| UnsavedVolume {
            volume: volume.name().clone(),
            server: volume.address(),
            files,
            changes,
        })
    }
}

struct Opened {
    volume: Arc<RemoteVolume>,
    venus: Arc<Venus>,
    /// It is not used any more, and its last changes are being sent.
    closing: bool,
}

impl Volumes {
    /// Volumes of this cell.
    pub fn new(cell: Arc<Cell>, config: VenusConfig) -> Arc<Self> {
        let (common, open, closed, neighbours, beside, counts) = Default::default();
        Arc::new(Volumes { cell, config, common, open, closed, neighbours, beside, counts })
    }

    /// Sets how other cells are reached, and this one's name. Called once, before the first lookup.
    pub fn has_neighbours(self: &Arc<Self>, own: Option<String>, reach: Box<CellOpener>) {
        if self.neighbours.set(Neighbours::new(self, own, reach)).is_err() {
            tracing::error!(
                "other cells are already configured; the second configuration is ignored"
            );
        }
    }

    /// These volumes belong to another cell than the first.
    pub(crate) fn is_neighbour(&self, beside: &Arc<Neighbours>) {
        // A cell is reached once.
        let _ = self.beside.set(Arc::downgrade(beside));
    }

    /// The volumes of the cell that a mount point names; these if it names none.
    ///
    /// # Errors
    /// `NoVolume` if the cell is not known; why it cannot be reached.
    pub fn of_cell(self: &Arc<Self>, point: &MountPoint) -> Result<Arc<Volumes>, Error> {
        let Some(cell) = &point.cell else { return Ok(Arc::clone(self)) };
        let neighbours = self.neighbours.get().cloned().or_else(|| self.beside.get()?.upgrade());
        neighbours.ok_or(Fault::NoVolume)?.get(cell)
    }

    /// Volumes of the server behind `remote`, whose events this receives.
    pub fn of(remote: Arc<dyn Remote>, config: VenusConfig) -> Arc<Self> {
        Self::new(Cell::new(remote), config)
    }

    /// Tokens of this machine's users in the cell.
    pub fn tokens(&self) -> Option<&Arc<TokenWallet>> {
        self.config.tokens.as_ref()
    }

    /// Asks a server, once, whether it trusts this host's user numbers. Until a server has
    /// answered, the client assumes that it does not.
    fn learn_standing(&self) {
        let Some(tokens) = self.tokens().filter(|_| self.counts.get().is_none()) else { return };
        let counts_of =
            |caller: &Caller| match self.cell.home().call(caller, Call::ServerReport, None) {
                Ok(Reply { answer: Answer::Report(report), .. }) => {
                    EffectiveIdentity::of(&report).map(|you| you.is_trusted())
                }
                _ => None,
            };
        // A server that trusts this host may still map its superuser to nobody's number.
        let counts = counts_of(&Caller {
            uid: NOBODY_ID,
            gid: NOBODY_ID,
            groups: None,
            who: RequestIdentity::NAMED,
        });
        tokens.set_untrusted_host(!counts.unwrap_or(false));
        tokens.set_squashed(counts == Some(true) && counts_of(&Caller::ROOT) != Some(true));
        if let Some(counts) = counts {
            let _ = self.counts.set(counts);
        }
    }

    /// A local user's identity in the cell changed: all rights are asked for anew.
    pub fn forget_rights(&self) {
        let open: Vec<Arc<Venus>> =
            self.open.lock().values().map(|opened| Arc::clone(&opened.venus)).collect();
        open.iter().for_each(|venus| venus.access().forget_rights());
    }

    /// The open volumes of this client, of all cells that were reached.
    pub fn all_open(self: &Arc<Self>) -> Vec<(VolumeId, Arc<Venus>)> {
        let neighbours = self.neighbours.get().cloned().or_else(|| self.beside.get()?.upgrade());
        let home = match &neighbours {
            Some(neighbours) => neighbours.home.upgrade(),
            None => Some(Arc::clone(self)),
        };
        let others = neighbours.map(|neighbours| neighbours.all()).unwrap_or_default();
        let each = |volumes: Arc<Volumes>| {
            let open = volumes.open.lock();
            open.iter().map(|(id, opened)| (*id, Arc::clone(&opened.venus))).collect::<Vec<_>>()
        };
        home.into_iter().chain(others).flat_map(each).collect()
    }

    /// Called before a local user's identity in the cell changes: sends the user's writes under the
    /// old identity.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn send_written(&self, request: &RequestContext<'_>) -> Result<(), Error> {
        let open: Vec<Arc<Venus>> =
            self.open.lock().values().map(|opened| Arc::clone(&opened.venus)).collect();
        open.iter().try_for_each(|venus| venus.send_written(request))
    }

    /// Asks a server of the cell that is in use, or else the one by which the cell was reached.
    fn ask(&self, request: &RequestContext<'_>, call: Call) -> Result<Answer, Error> {
        let used = self.open.lock().values().next().map(|opened| Arc::clone(&opened.volume));
        let remote =
            used.map_or_else(|| Arc::clone(self.cell.home()), |volume| volume as Arc<dyn Remote>);
        Ok(remote.call(request.caller, call, request.cancel)?.answer)
    }

    /// As [`Venus::auth`], for a caller without a volume.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn auth(&self, request: &RequestContext<'_>, call: AuthCall) -> Result<Answer, Error> {
        self.ask(request, Call::Auth { behalf: None, call: Box::new(call) })
    }

    /// As [`Venus::learn_ids`], for a caller without a volume.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn learn_ids(&self, request: &RequestContext<'_>) -> Result<bool, Error> {
        let Answer::Report(report) = self.ask(request, Call::ServerReport)? else {
            return Err(Error::Protocol);
        };
        let tokens = self.tokens().zip(EffectiveIdentity::of(&report));
        Ok(tokens
            .is_some_and(|(tokens, you)| tokens.set_ids(request.caller.uid, you.ids().clone())))
    }

    /// The cell of these volumes.
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// `NoVolume` if there is none; the service's refusal.
    pub fn find(
        &self,
        request: &RequestContext<'_>,
        name: &Name,
    ) -> Result<Arc<RemoteVolume>, Error> {
        Ok(self.cell.find(name, request.cancel)?)
    }

    /// The volume that a mount point [in this cell](Self::of_cell) leads to. `read_only`: all
    /// volumes on the path are.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn follow(
        &self,
        request: &RequestContext<'_>,
        point: &MountPoint,
        read_only: bool,
    ) -> Result<Arc<RemoteVolume>, Error> {
        if !point.read_write
            && read_only
            && let Ok(released) = Name::new(&[point.volume.as_bytes(), READ_ONLY].concat())
        {
            match self.find(request, &released) {
                Err(Error::Fault(Fault::NoVolume)) => {}
                found => return found,
            }
        }
        self.find(request, &point.volume)
    }

    /// A cache manager for the volume.
    ///
    /// # Errors
    /// `Busy` if it has one, also while that [closes](Self::closing); why its threads or the disk
    /// cache cannot be started.
    pub fn open(&self, volume: &Arc<RemoteVolume>) -> Result<Arc<Venus>, Error> {
        self.learn_standing();
        let mut open = self.open.lock();
        if open.contains_key(&volume.id()) {
            return Err(Fault::Busy.into());
        }
        let made = Venus::beside(
            &self.common,
            Arc::clone(volume) as _,
            self.config.clone(),
            volume.is_read_only(),
            Some(volume.id()),
        );
        let made = Arc::new(made.map_err(|error| Error::NoCache(error.to_string()))?);
        let opened =
            Opened { volume: Arc::clone(volume), venus: Arc::clone(&made), closing: false };
        open.insert(volume.id(), opened);
        Ok(made)
    }

    /// The volume is not used any more: its cache manager sends its changes, soon, and ends.
    pub fn close(self: &Arc<Self>, volume: VolumeId) {
        let venus = {
            let mut open = self.open.lock();
            let Some(opened) = open.get_mut(&volume).filter(|one| !one.closing) else { return };
            opened.closing = true;
            Arc::clone(&opened.venus)
        };
        let this = Arc::clone(self);
        let closing = std::thread::Builder::new().name("venus-close".into()).spawn(move || {
            if let Err(error) = venus.shutdown() {
                tracing::warn!(%error, volume = volume.0, "cannot send the last changes of a \
                    closed volume");
            }
            this.open.lock().remove(&volume);
            this.closed.notify_all();
        });
        if let Err(error) = closing {
            self.open.lock().get_mut(&volume).into_iter().for_each(|one| one.closing = false);
            // The volume stays open, and shutdown sends its changes.
            tracing::error!(%error, "cannot start a thread to close a volume; shutdown closes it");
        }
    }

    /// The cache manager of a closed volume that still sends its last changes.
    pub fn closing(&self, volume: VolumeId) -> Option<Arc<Venus>> {
        let open = self.open.lock();
        open.get(&volume).filter(|one| one.closing).map(|one| Arc::clone(&one.venus))
    }

    /// The volume of this name, if it is closing.
    pub fn closing_named(&self, name: &Name) -> Option<VolumeId> {
        let open = self.open.lock();
        let mut closing = open.iter().filter(|(_, one)| one.closing);
        closing.find(|(_, one)| one.volume.name() == name).map(|(id, _)| *id)
    }

    /// Waits until the volume is not closing any more.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn wait_for_close(&self, volume: VolumeId, cancel: Option<&Cancel>) -> Result<(), Error> {
        let mut open = self.open.lock();
        while open.get(&volume).is_some_and(|one| one.closing) {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            self.closed.wait_for(&mut open, POLL_INTERVAL);
        }
        Ok(())
    }

    /// The cache manager of the volume, if it has one.
    pub fn venus(&self, volume: VolumeId) -> Option<Arc<Venus>> {
        Some(Arc::clone(&self.open.lock().get(&volume)?.venus))
    }

    /// An open volume.
    pub fn volume(&self, volume: VolumeId) -> Option<Arc<RemoteVolume>> {
        Some(Arc::clone(&self.open.lock().get(&volume)?.volume))
    }

    /// Whether an open volume was removed from the cell.
    pub fn is_removed(&self, request: &RequestContext<'_>, volume: VolumeId) -> bool {
        self.volume(volume).is_some_and(|volume| volume.is_removed(request.cancel))
    }

    /// After the takeover from a predecessor of this process: where its session could not be
    /// resumed, promises and locks are lost. To be called when the kernel's requests are served.
    pub fn begin_anew_unless_resumed(&self) {
        let open = self.open.lock();
        let anew = open.values().filter(|one| !one.volume.is_resumed());
        let anew: Vec<Arc<Venus>> = anew.map(|one| Arc::clone(&one.venus)).collect();
        drop(open);
        anew.iter().for_each(|venus| venus.core.on_lease_lost());
    }

    /// All cache managers, those of other cells too.
    fn all(&self) -> Vec<Arc<Venus>> {
        let ours = self.open.lock().values().map(|opened| Arc::clone(&opened.venus)).collect();
        let others = self.neighbours.get().map(|neighbours| neighbours.all()).unwrap_or_default();
        others.iter().fold(ours, |mut all: Vec<_>, other| {
            all.extend(other.all());
            all
        })
    }

    /// Ends all sessions with a farewell to the server, those with other cells too.
    pub fn detach(&self) {
        let others = self.neighbours.get().map(|neighbours| neighbours.all()).unwrap_or_default();
        others.iter().for_each(|other| other.cell.detach());
        self.cell.detach();
    }

    /// [`Venus::hand_over`] of all.
    ///
    /// # Errors
    /// The first error.
    pub fn hand_over(&self) -> Result<(), Error> {
        self.all().iter().map(|venus| venus.hand_over()).fold(Ok(()), Result::and)
    }

    /// The changes that servers do not have yet, or may lose, by volume.
    pub fn unsaved(&self) -> Vec<UnsavedVolume> {
        let open = self.open.lock();
        let mut all: Vec<UnsavedVolume> =
            open.values().filter_map(|one| UnsavedVolume::of(&one.volume, &one.venus)).collect();
        drop(open);
        let others = self.neighbours.get().map(|neighbours| neighbours.all()).unwrap_or_default();
        all.extend(others.iter().flat_map(|other| other.unsaved()));
        all
    }

    /// [`Venus::stop`] of all.
    pub fn stop(&self) {
        self.all().iter().for_each(|venus| venus.stop());
    }

    /// [`Self::stop`] and [`Self::detach`], in this order if the servers answer. One that is silent
    /// delays it only for a moment: what background threads still ask of it, such as the end of
    /// holds, ends with the session.
    pub fn leave(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let (over, ended) = mpsc::channel::<()>();
        let stopping = std::thread::Builder::new().name("volumes-stop".into()).spawn(move || {
            this.stop();
            drop(over);
        });
        if stopping.is_ok() {
            let _ = ended.recv_timeout(STOP_PATIENCE);
        }
        self.detach();
        if let Ok(stopping) = stopping {
            let _ = stopping.join();
        }
    }

    /// [`Venus::shutdown`] of all.
    ///
    /// # Errors
    /// The first error.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.all().iter().map(|venus| venus.shutdown()).fold(Ok(()), Result::and)
    }
}

/// How long background threads may take to end before the sessions do.
const STOP_PATIENCE: Duration = Duration::from_millis(200);

/// How long a cell that could not be reached is not tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Reaches a cell by its name; [`Fault::NoVolume`] if it is not known.
pub type CellOpener = dyn Fn(&str) -> Result<Arc<Volumes>, Error> + Send + Sync;

/// The other cells, which mount points lead to.
pub struct Neighbours {
    /// Name of the first mount's cell, if known.
    own: Option<String>,
    home: Weak<Volumes>,
    reach: Box<CellOpener>,
    known: Mutex<HashMap<String, KnownCell>>,
}

enum KnownCell {
    Reached(Arc<Volumes>),
    Failed(Instant, Error),
}

impl Neighbours {
    pub(crate) fn new(
        home: &Arc<Volumes>,
        own: Option<String>,
        reach: Box<CellOpener>,
    ) -> Arc<Self> {
        Arc::new(Neighbours { own, home: Arc::downgrade(home), reach, known: Mutex::default() })
    }

    /// The volumes of a cell.
    pub(crate) fn get(self: &Arc<Self>, cell: &str) -> Result<Arc<Volumes>, Error> {
        if self.own.as_deref() == Some(cell) {
            return self.home.upgrade().ok_or(Error::Lost);
        }
        match self.known.lock().get(cell) {
            Some(KnownCell::Reached(volumes)) => return Ok(Arc::clone(volumes)),
            Some(KnownCell::Failed(at, error)) if at.elapsed() < RETRY => return Err(error.clone()),
            Some(KnownCell::Failed(..)) | None => {}
        }
        // Requests for other cells need not wait for this one.
        let reached = (self.reach)(cell);
        let mut known = self.known.lock();
        if let (Some(KnownCell::Reached(first)), Ok(second)) = (known.get(cell), &reached) {
            second.cell().detach();
            return Ok(Arc::clone(first));
        }
        match &reached {
            Ok(volumes) => {
                volumes.is_neighbour(self);
                known.insert(cell.to_owned(), KnownCell::Reached(Arc::clone(volumes)));
            }
            // The name may appear at any moment, and a new attempt is cheap: it is not remembered.
            Err(Error::Fault(Fault::NoVolume)) => {}
            Err(error) => {
                tracing::warn!(cell, %error, "cannot reach the cell; not tried again for 10 s");
                known.insert(cell.to_owned(), KnownCell::Failed(Instant::now(), error.clone()));
            }
        }
        reached
    }

    /// The volumes of the cells that were reached.
    pub(crate) fn all(&self) -> Vec<Arc<Volumes>> {
        let known = self.known.lock();
        let reached = known.values().filter_map(|one| match one {
            KnownCell::Reached(volumes) => Some(Arc::clone(volumes)),
            KnownCell::Failed(..) => None,
        });
        reached.collect()
    }
}
