//! The dynamic root: a directory above all cells, which no server has. In it every cell is a mount
//! point to its `root.cell`.
//!
//! To the cache manager and the mount it is a read-only volume like any other, served by a
//! [`Remote`] that answers from memory. It shows:
//!
//! - `CELL`: mount point `#CELL:root.cell`; for the own cell, those that [`KnownCells`] lists, and
//!   those that were looked up and found.
//! - `.CELL`: mount point `%CELL:root.cell`; for the own cell, and those whose `.CELL` was looked
//!   up, since only the cell itself can answer which it is. While nothing is released there it is a
//!   symbolic link to `CELL`, because both would lead to the same volume, which can be mounted only
//!   once.
//! - `SHORT`, `.SHORT`: symbolic links to `CELL` and `.CELL`; for the own cell's first label, if no
//!   other cell is called or begins so.
//!
//! An unlisted name that may be a cell's is searched for; that takes as long as
//! [`KnownCells::finds`] does, so no lock is held. A failed search is remembered for [`ABSENT`].
//! Unlisted names can be found, so no listing reports its end: otherwise the cache manager would
//! conclude which names are absent.
//!
//! The content changes when the list does, when a cell is found, and when `root.cell` is released
//! for the first time. A thread checks for that, sends breaks by name as a server would, and renews
//! the lease, which no client can lose. A name that no client received is not broken, because that
//! could detach a submount there. The thread does not wait for break acknowledgements: no caller
//! waits for the change.
//!
//! Source: AFS, `afsd -dynroot`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use client::{BreakAck, CallError, Cancel, Events, Remote, Reply, clock};
use parking_lot::{Condvar, Mutex};
use types::limits::KEEP_ALIVE;
use types::{
    Answer, BootVerifier, BreakItem, BreakReason, Call, Caller, CellCall, Cookie, DataVersion,
    DirEntry, Fault, Fid, Kind, Name, PartitionInfo, Revised, Revision, ServerId, ServerInfo,
    Status, StatusVersion, Timestamp, VolumeCall, VolumeId, VolumeInfo, VolumeKind, VolumeState,
    VolumeStatus,
};

/// Name of the volume to be mounted.
pub const DYNROOT: &str = "dynroot";

/// A volume number that no real volume has.
const VOLUME: u64 = 1;

const ROOT: u64 = 1;

/// How long a failed search for a cell is not repeated.
const ABSENT: Duration = Duration::from_secs(60);

/// Most names that are remembered to be absent; beyond it all are forgotten.
const ABSENT_MAX: usize = 1024;

/// One check of the list out of so many also checks what is released, which calls servers.
const RELEASED_EVERY: u32 = 6;

/// Bytes of an entry besides its name and target.
const ENTRY_BYTES: usize = 192;

/// The cells that there are.
pub trait KnownCells: Send + Sync {
    /// The cell of this machine.
    fn own(&self) -> Option<String>;
    /// Other cells that need no search.
    fn listed(&self) -> Vec<String>;
    /// Whether the cell exists, as far as that can be found out in some seconds.
    fn finds(&self, cell: &str) -> bool;
    /// Whether its `root.cell` has been released; `None` if it cannot be reached.
    fn is_released(&self, cell: &str) -> Option<bool>;
}

/// See the head of the file.
pub struct Dynroot {
    cells: Box<dyn KnownCells>,
    state: Mutex<State>,
    events: Mutex<Option<Arc<dyn Events>>>,
    /// Signalled when there are breaks to send.
    poke: Condvar,
}

/// The entry under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    kind: Kind,
    target: String,
}

struct State {
    version: DataVersion,
    changed: Timestamp,
    /// Cells that were looked up and found.
    found: BTreeSet<String>,
    /// Whether cells whose `.CELL` was looked up have a released `root.cell`.
    released: HashMap<String, bool>,
    shown: BTreeMap<String, Shown>,
    /// The numbers of all entries ever shown, which are the cookies too.
    numbers: HashMap<(String, Kind), u64>,
    absent: HashMap<Name, Instant>,
    /// Names whose promises end; `None`: only the root's status and listing.
    broken: Vec<Option<Name>>,
}

fn is_cell_name(name: &str) -> bool {
    let letters = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_')
    };
    let labels = name.split('.').all(|label| !label.is_empty() && !label.starts_with('-'));
    name.contains('.')
        && name.bytes().all(letters)
        && labels
        && name.len() <= types::limits::CELL_BYTES_MAX
}

fn name(text: &str) -> Option<Name> {
    Name::new(text.as_bytes()).ok()
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(since.as_secs() as i64, since.subsec_nanos())
}

fn root() -> Fid {
    Fid::new(VOLUME, ROOT, 1)
}

impl Dynroot {
    /// Starts the dynamic root of these cells.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn start(cells: Box<dyn KnownCells>) -> std::io::Result<Arc<Dynroot>> {
        let state = State {
            version: DataVersion::FIRST,
            changed: wall(),
            found: BTreeSet::new(),
            released: HashMap::new(),
            shown: BTreeMap::new(),
            numbers: HashMap::new(),
            absent: HashMap::new(),
            broken: Vec::new(),
        };
        let this = Dynroot {
            cells,
            state: Mutex::new(state),
            events: Mutex::new(None),
            poke: Condvar::new(),
        };
        let this = Arc::new(this);
        this.refresh();
        let checking = Arc::downgrade(&this);
        std::thread::Builder::new().name("dynroot".into()).spawn(move || run_checks(&checking))?;
        Ok(this)
    }

    /// Computes the entries anew.
    fn refresh(&self) {
        let (own, listed) = (self.cells.own(), self.cells.listed());
        let mut state = self.state.lock();
        let mut cells: BTreeSet<String> = own.iter().cloned().chain(listed).collect();
        cells.extend(state.found.iter().cloned());
        let mut shown = BTreeMap::new();
        for cell in &cells {
            shown.insert(cell.clone(), Shown::point(format!("#{cell}:root.cell")));
            let written = state.released.get(cell).map(|released| match released {
                true => Shown::point(format!("%{cell}:root.cell")),
                false => Shown::link(cell.clone()),
            });
            shown.extend(written.map(|written| (format!(".{cell}"), written)));
        }
        if let Some(own) = &own
            && let Some((short, _)) = own.split_once('.')
            && !cells.iter().any(|cell| cell != own && cell.split('.').next() == Some(short))
        {
            shown.insert(short.to_owned(), Shown::link(own.clone()));
            shown.insert(format!(".{short}"), Shown::link(format!(".{own}")));
        }
        state.show(shown);
        self.poke.notify_all();
    }

    /// Asks these cells whether anything is released. A cell that cannot be reached counts as
    /// released, so that a visitor receives the reason.
    fn ask_released(&self, cells: impl IntoIterator<Item = String>) {
        for cell in cells {
            let released = self.cells.is_released(&cell);
            let mut state = self.state.lock();
            let known = state.released.entry(cell).or_insert(true);
            *known = released.unwrap_or(*known);
        }
    }

    /// The meaning of a name, searched for if necessary.
    fn find(&self, name: &Name) -> Option<Shown> {
        let text = std::str::from_utf8(name.as_bytes()).ok()?;
        let cell = text.strip_prefix('.').unwrap_or(text);
        let shows = |text: &str| self.state.lock().shown.get(text).cloned();
        if let Some(shown) = shows(text) {
            return Some(shown);
        }
        if shows(cell).is_none_or(|shown| shown.kind != Kind::MountPoint) {
            if !is_cell_name(cell) || self.state.lock().absent.contains_key(name) {
                return None;
            }
            if !self.cells.finds(cell) {
                self.state.lock().absent.insert(name.clone(), Instant::now());
                self.poke.notify_all();
                return None;
            }
            self.state.lock().found.insert(cell.to_owned());
        }
        if text != cell {
            self.ask_released([cell.to_owned()]);
        }
        self.refresh();
        shows(text)
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Answer, Fault> {
        if dir != root() {
            return Err(if dir.volume.0 == VOLUME { Fault::NotDirectory } else { Fault::Stale });
        }
        let shown = self.find(name).ok_or(Fault::NotFound)?;
        let text = String::from_utf8_lossy(name.as_bytes());
        let state = self.state.lock();
        let status = state.status(&text, &shown).ok_or(Fault::NotFound)?;
        Ok(Answer::Entry { status, dir_version: state.version, sole: false })
    }

    fn list(&self, dir: Fid, cookie: Cookie, bytes_max: u32, plus: bool) -> Result<Answer, Fault> {
        if dir != root() {
            return Err(Fault::NotDirectory);
        }
        let state = self.state.lock();
        let mut all: Vec<DirEntry> =
            state.shown.iter().filter_map(|(name, shown)| state.entry(name, shown, plus)).collect();
        all.sort_by_key(|entry| entry.cookie);
        let mut room = bytes_max as usize;
        let fits = |entry: &DirEntry| {
            let bytes = ENTRY_BYTES
                + entry.name.as_bytes().len()
                + entry.target.as_ref().map_or(0, Bytes::len);
            room.checked_sub(bytes).inspect(|left| room = *left).is_some()
        };
        let entries =
            all.into_iter().filter(|entry| entry.cookie > cookie).take_while(fits).collect();
        Ok(Answer::Entries { entries, end: false, dir_version: state.version })
    }

    fn status_of(&self, fid: Fid) -> Result<Status, Fault> {
        let state = self.state.lock();
        if fid == root() {
            return Ok(state.root());
        }
        state
            .shown
            .iter()
            .filter_map(|(name, shown)| state.status(name, shown))
            .find(|status| status.fid == fid)
            .ok_or(Fault::Stale)
    }

    fn target(&self, fid: Fid) -> Result<Answer, Fault> {
        let state = self.state.lock();
        let found = state.shown.iter().find(|(name, shown)| state.fid(name, shown) == Some(fid));
        found.map(|(_, shown)| Answer::Target(shown.target.clone().into())).ok_or(Fault::Stale)
    }

    fn volume(&self) -> VolumeInfo {
        let state = self.state.lock();
        VolumeInfo {
            id: VolumeId(VOLUME),
            tree: VolumeId(VOLUME),
            kind: VolumeKind::ReadOnly,
            state: VolumeState::Online,
            partition: types::PartitionNo::default(),
            epoch: 1,
            origin: None,
            name: name(DYNROOT).expect("the constant is a valid name"),
            created: state.changed,
            updated: state.changed,
            quota_bytes: 0,
            quota_files: 0,
            used_bytes: 0,
            used_files: state.shown.len() as u64 + 1,
            encrypted: None,
        }
    }

    fn volume_call(&self, call: &VolumeCall) -> Result<Answer, Fault> {
        match call {
            VolumeCall::Examine { volume } => {
                let info = self.volume();
                let is_it = match volume {
                    types::WhichVolume::Id(id) => *id == info.id,
                    types::WhichVolume::Name(name) => *name == info.name,
                };
                if is_it {
                    Ok(Answer::Volumes { volumes: vec![info], end: true })
                } else {
                    Err(Fault::NoVolume)
                }
            }
            VolumeCall::Partitions => {
                let (no, name) = (types::PartitionNo::default(), "memory".to_owned());
                let compression = "none".to_owned();
                Ok(Answer::Partitions(vec![PartitionInfo {
                    no,
                    name,
                    total_bytes: 0,
                    free_bytes: 0,
                    compression,
                }]))
            }
            _ => Err(Fault::Unsupported),
        }
    }

    fn answer(&self, call: Call) -> Result<Answer, Fault> {
        match call {
            Call::Root { volume } if volume == self.volume().name => {
                Ok(Answer::Status(self.status_of(root())?))
            }
            Call::Root { .. } => Err(Fault::NoVolume),
            Call::Lookup { dir, name } => self.lookup(dir, &name),
            Call::ReadDir { dir, cookie, bytes_max, plus } => {
                self.list(dir, cookie, bytes_max, plus)
            }
            Call::ReadLink { fid } => self.target(fid),
            Call::GetStatus { fid } => Ok(Answer::Status(self.status_of(fid)?)),
            Call::XattrGet { .. } => Err(Fault::NoXattr),
            Call::XattrList { .. } => Ok(Answer::XattrNames(Vec::new())),
            Call::VolumeStatus { .. } => {
                let used_files = self.volume().used_files;
                Ok(Answer::Volume(VolumeStatus { used_files, ..VolumeStatus::default() }))
            }
            Call::Commit { .. } | Call::CommitVolume { .. } => {
                Ok(Answer::Committed { verifier: BootVerifier(1) })
            }
            Call::Hold { .. } | Call::Unhold { .. } | Call::ReclaimDone | Call::Return { .. } => {
                Ok(Answer::Done)
            }
            Call::Volume(call) => self.volume_call(&call),
            Call::Cell(CellCall::Me) => {
                let record = ServerInfo {
                    id: ServerId(1),
                    name: "this machine".to_owned(),
                    addresses: Vec::new(),
                    keys: Vec::new(),
                };
                Ok(Answer::Servers(vec![Revised { record, revision: Revision::default() }]))
            }
            Call::ServerReport => {
                Ok(Answer::Report(format!(r#"{{"server":{{"cell":"{DYNROOT}"}}}}"#)))
            }
            call if call.changes() => Err(Fault::ReadOnly),
            _ => Err(Fault::Unsupported),
        }
    }

    /// Forgets names whose failed search was long ago, or all of them if they are too many; the
    /// next lookup searches again.
    fn forget_absent(&self) {
        let mut state = self.state.lock();
        let all = state.absent.len() > ABSENT_MAX;
        let old = state.absent.extract_if(|_, since| all || since.elapsed() >= ABSENT);
        let old: Vec<Option<Name>> = old.map(|(name, _)| Some(name)).collect();
        state.broken.extend(old);
    }

    /// Sends breaks for the changes.
    fn send_breaks(&self) {
        let broken = std::mem::take(&mut self.state.lock().broken);
        let Some(events) = self.events.lock().clone() else { return };
        for name in broken {
            let reason = if name.is_some() { BreakReason::Data } else { BreakReason::Status };
            let item = BreakItem { fid: root(), reason, name };
            events.on_break(&[item], BreakAck::new(|_| ()));
        }
    }

    fn renew(&self) {
        let now = clock::now();
        if let Some(events) = self.events.lock().clone() {
            events.on_renewed(now);
        }
    }

    /// Waits until there are breaks to send, or, which the result tells, it is time to check again.
    fn rest(&self) -> bool {
        let mut state = self.state.lock();
        state.broken.is_empty()
            && state.absent.len() <= ABSENT_MAX
            && self.poke.wait_for(&mut state, KEEP_ALIVE).timed_out()
    }
}

fn run_checks(of: &Weak<Dynroot>) {
    let mut looks = 0_u32;
    loop {
        let Some(this) = of.upgrade() else { return };
        if this.rest() {
            this.renew();
            if looks.is_multiple_of(RELEASED_EVERY) {
                let cells: BTreeSet<String> = this.state.lock().released.keys().cloned().collect();
                this.ask_released(cells.into_iter().chain(this.cells.own()));
            }
            this.refresh();
            looks = looks.wrapping_add(1);
        }
        this.forget_absent();
        this.send_breaks();
    }
}

impl Shown {
    fn point(target: String) -> Shown {
        Shown { kind: Kind::MountPoint, target }
    }

    fn link(target: String) -> Shown {
        Shown { kind: Kind::Symlink, target }
    }
}

impl State {
    /// Replaces the shown entries.
    fn show(&mut self, shown: BTreeMap<String, Shown>) {
        let names: BTreeSet<&String> = self.shown.keys().chain(shown.keys()).collect();
        let differ = names.into_iter().filter(|name| self.shown.get(*name) != shown.get(*name));
        let changed: Vec<Name> = differ.filter_map(|text| name(text)).collect();
        if changed.is_empty() {
            return;
        }
        for (name, one) in &shown {
            let next = self.numbers.len() as u64 + 1;
            self.numbers.entry((name.clone(), one.kind)).or_insert(next);
        }
        self.version = self.version.next();
        self.changed = wall();
        // A client that never received anything of a cell needs no break: a process that searches
        // for it now may be on its way through it.
        let unknown = |state: &State, name: &Name| {
            let text = String::from_utf8_lossy(name.as_bytes());
            let cell = text.strip_prefix('.').unwrap_or(&text);
            !state.shown.contains_key(&*text)
                && is_cell_name(cell)
                && !state.absent.contains_key(name)
        };
        let broken =
            changed.iter().filter(|name| !unknown(self, name)).map(|name| Some(name.clone()));
        let broken: Vec<Option<Name>> = broken.chain([None]).collect();
        self.broken.extend(broken);
        self.absent.retain(|name, _| !changed.contains(name));
        self.shown = shown;
    }

    fn number(&self, name: &str, shown: &Shown) -> Option<u64> {
        self.numbers.get(&(name.to_owned(), shown.kind)).copied()
    }

    /// The fid of an entry other than a directory has an even number.
    fn fid(&self, name: &str, shown: &Shown) -> Option<Fid> {
        Some(Fid::new(VOLUME, self.number(name, shown)? * 2, 1))
    }

    fn any(&self, fid: Fid, kind: Kind) -> Status {
        Status {
            fid,
            kind,
            mode: 0o755,
            by_list: false,
            read_times: false,
            own_list: false,
            uid: 0,
            gid: 0,
            links: 1,
            size: 4096,
            used: 0,
            device: 0,
            accessed: self.changed,
            modified: self.changed,
            changed: self.changed,
            created: self.changed,
            data_version: DataVersion::FIRST,
            status_version: StatusVersion::FIRST,
        }
    }

    fn root(&self) -> Status {
        let points = self.shown.values().filter(|one| one.kind == Kind::MountPoint).count();
        Status {
            links: 2 + points as u32,
            data_version: self.version,
            status_version: StatusVersion(self.version.0),
            ..self.any(root(), Kind::Directory)
        }
    }

    fn status(&self, name: &str, shown: &Shown) -> Option<Status> {
        let mode = if shown.kind == Kind::Symlink { 0o777 } else { 0o755 };
        let any = self.any(self.fid(name, shown)?, shown.kind);
        Some(Status { mode, size: shown.target.len() as u64, ..any })
    }

    fn entry(&self, text: &str, shown: &Shown, plus: bool) -> Option<DirEntry> {
        let status = self.status(text, shown)?;
        let target = (plus && shown.kind == Kind::Symlink).then(|| shown.target.clone().into());
        let cookie = Cookie(self.number(text, shown)?);
        let (fid, kind) = (status.fid, shown.kind);
        Some(DirEntry {
            name: name(text)?,
            fid,
            kind,
            cookie,
            status: plus.then_some(status),
            sole: false,
            target,
        })
    }
}

impl Remote for Dynroot {
    fn call(&self, _: &Caller, call: Call, _: Option<&Cancel>) -> Result<Reply, CallError> {
        Ok(self.answer(call)?.into())
    }

    /// Calls of a chain after the first concern files, and there are none here.
    fn chain(&self, _: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        let mut failed = false;
        let each = calls.into_iter().map(|mut call| {
            let follows = call.fids_mut().into_iter().any(|fid| *fid == Fid::CURRENT);
            let answer = match () {
                () if failed => Err(Fault::ChainAborted),
                () if follows => Err(Fault::Unsupported),
                () => self.answer(call),
            };
            failed |= answer.is_err();
            Ok(answer?.into())
        });
        each.collect()
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        *self.events.lock() = Some(events);
        self.renew();
    }

    /// This volume needs no disk cache.
    fn passes_descriptors(&self) -> bool {
        true
    }
}
