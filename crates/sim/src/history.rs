//! Records what the run did and checks it against the rules of `docs/spec/invariants.md`.
//!
//! Times here are the simulation's own, of no machine's clock. A call that failed because its
//! session was lost has an unknown outcome: the server may have executed it at any time since it
//! began, or never.
//!
//! Reads are checked by *versions*. When a change of a file is done, its versions become the file's
//! *floor*; a read that begins later must show at least that (CB-1). *Stable* is the floor of
//! changes that the server acknowledged as stable (DU-1). When the server's machine loses its
//! power, the rest may be gone: floors fall to the state of the disk, and a new *timeline* begins,
//! in which version numbers may be used again.

mod nest;

use std::collections::{BTreeMap, BTreeSet};

use types::{BootVerifier, DataVersion, Fid, Name, Status, StatusVersion, Time};

use nest::NestHistory;

/// `Err`: the id of the rule that did not hold, and what happened.
pub type Verdict = Result<(), (&'static str, String)>;

/// One operation of an application, numbered over the whole run; 0 stands for the initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpNo(pub u64);

/// The least versions that a read must show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Least version of the data or of the directory entries.
    pub data: DataVersion,
    /// Least version of the status.
    pub status: StatusVersion,
}

impl Floor {
    fn raise(&mut self, status: &Status) {
        self.data = self.data.max(status.data_version);
        self.status = self.status.max(status.status_version);
    }
}

/// The floors of all files at one moment.
#[derive(Clone, Debug, Default)]
pub struct Floors {
    timeline: u32,
    files: BTreeMap<Fid, Floor>,
}

/// The circumstances of a change that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The timeline in which the change began.
    pub timeline: u32,
    /// The boot verifier in the answer, or that of the session when the change began.
    pub verifier: BootVerifier,
    /// When the answer arrived.
    pub now: Time,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    data_version: DataVersion,
    verifier: BootVerifier,
    done: Time,
}

#[derive(Debug, Default)]
struct FileRecord {
    stable: DataVersion,
    /// Changes of this timeline.
    changes: Vec<Change>,
    /// Which write made a version of this timeline.
    writes: BTreeMap<DataVersion, OpNo>,
    /// Which writes may have produced the data of a version.
    values: BTreeMap<DataVersion, Vec<OpNo>>,
    /// Versions found after losses of power that mix blocks of several unstable writes. Each loss
    /// produces a version number of its own; a client that cached one may show it until it learns
    /// of the next.
    torn: BTreeSet<DataVersion>,
}

/// A name that one application makes and removes, and no other one touches.
#[derive(Clone, Debug)]
pub struct OwnName {
    /// The file, once the answer to the creation arrived.
    pub fid: Option<Fid>,
    /// The timeline and the directory's version of the creation.
    made: Option<(u32, DataVersion)>,
    /// The removal has begun.
    pub removing: bool,
    removed: Option<(u32, DataVersion)>,
}

#[derive(Debug, Default)]
struct Append {
    acknowledged: Option<(u32, u64, bool)>,
}

/// A lock that an application believes it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The client's index.
    pub client: usize,
    /// The application's index in that client.
    pub thread: usize,
    /// The locked file.
    pub fid: Fid,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
}

/// A creation or removal of a shared name.
#[derive(Clone, Copy, Debug)]
struct NameChange {
    makes: bool,
    began: Time,
    /// `None`: no answer arrived yet.
    done: Option<Time>,
}

/// The contents of the server's disk.
#[derive(Debug, Default)]
pub struct DiskContent {
    /// Files with their status and their data.
    pub files: BTreeMap<Fid, (Status, Vec<u8>)>,
    /// Entries of the shared directory.
    pub names: BTreeMap<Name, Fid>,
    /// Names in the nest.
    pub nest: BTreeSet<Name>,
}

/// Counters for the summary of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTally {
    /// Operations that were answered.
    pub done: u64,
    /// Operations with unknown outcome.
    pub unknown: u64,
    /// Reads that a cache answered.
    pub cached: u64,
    /// Starts of the server after the first.
    pub restarts: u64,
    /// Losses of power.
    pub losses: u64,
    /// Locks that applications got.
    pub locks: u64,
    /// Sessions that were lost.
    pub sessions_lost: u64,
    /// Delegations that clients got.
    pub delegations: u64,
    /// Changes that clients answered themselves.
    pub own_changes: u64,
}

/// The record of a run, with the checks; see the head of the file.
#[derive(Debug, Default)]
pub struct History {
    timeline: u32,
    floors: BTreeMap<Fid, Floor>,
    files: BTreeMap<Fid, FileRecord>,
    in_doubt: BTreeSet<OpNo>,
    own: BTreeMap<Name, OwnName>,
    shared: BTreeMap<Name, Vec<NameChange>>,
    appends: BTreeMap<OpNo, Append>,
    locks: Vec<Belief>,
    trusted_until: BTreeMap<usize, Time>,
    last_op: u64,
    /// The changes of the nest.
    pub nest: NestHistory,
    /// The counters.
    pub tally: SessionTally,
}

impl History {
    /// Numbers an operation that begins; until [`History::wrote`] its effect may show at any time.
    pub fn begin(&mut self) -> OpNo {
        self.last_op += 1;
        OpNo(self.last_op)
    }

    /// The operation will write data that names it.
    pub fn may_write(&mut self, op: OpNo) {
        self.in_doubt.insert(op);
    }

    /// The least versions that a read which begins now must show.
    pub fn floors(&self) -> Floors {
        Floors { timeline: self.timeline, files: self.floors.clone() }
    }

    /// A change that began in `timeline` was answered: every later read must show it. If power was
    /// lost meanwhile, the change may have been made and lost.
    pub fn changed(&mut self, done: Done, status: &Status) {
        if done.timeline == self.timeline {
            self.floors.entry(status.fid).or_default().raise(status);
            let change = Change {
                data_version: status.data_version,
                verifier: done.verifier,
                done: done.now,
            };
            self.files.entry(status.fid).or_default().changes.push(change);
        }
    }

    /// A change that gave the file this operation's data was answered.
    pub fn wrote(&mut self, op: OpNo, done: Done, status: &Status) -> Verdict {
        let file = self.files.entry(status.fid).or_default();
        let values = file.values.entry(status.data_version).or_default();
        if !values.contains(&op) {
            values.push(op);
        }
        if done.timeline != self.timeline {
            return Ok(());
        }
        self.in_doubt.remove(&op);
        let twin = file.writes.insert(status.data_version, op);
        self.changed(done, status);
        match twin {
            Some(twin) => {
                Err(("EO-1", format!("{twin:?} and {op:?} both made {:?}", status.data_version)))
            }
            None => Ok(()),
        }
    }

    /// Records the initial state of a file.
    pub fn initial(&mut self, status: &Status, verifier: BootVerifier) {
        self.files
            .entry(status.fid)
            .or_default()
            .values
            .entry(status.data_version)
            .or_default()
            .push(OpNo(0));
        self.changed(Done { timeline: self.timeline, verifier, now: Time::ZERO }, status);
        self.stable_up_to(status.fid, status.data_version);
    }

    /// The file is stable up to a version.
    pub fn stable_up_to(&mut self, fid: Fid, version: DataVersion) {
        let file = self.files.entry(fid).or_default();
        file.stable = file.stable.max(version);
    }

    /// A commit that began at `began` was answered with `verifier`.
    pub fn committed(&mut self, fid: Fid, began: Time, verifier: BootVerifier) {
        let Some(file) = self.files.get(&fid) else { return };
        let covered = file
            .changes
            .iter()
            .filter(|change| change.done <= began && change.verifier == verifier);
        let version = covered.map(|change| change.data_version).max();
        if let Some(version) = version {
            self.stable_up_to(fid, version);
        }
    }

    /// Checks that `status` is not older than `since`, the floors when the read began.
    pub fn check_status(&self, since: &Floors, status: &Status, cached: bool) -> Verdict {
        self.check_data_version(since, status.fid, status.data_version, cached)?;
        let floor = self.floor(since, status.fid);
        if status.status_version < floor.status {
            let shown = status.status_version;
            return Err((
                "CB-1",
                format!("{}: {shown:?} shown after {floor:?}, cached {cached}", status.fid),
            ));
        }
        Ok(())
    }

    /// As [`History::check_status`], for data or entries alone.
    pub fn check_data_version(
        &self,
        since: &Floors,
        fid: Fid,
        version: DataVersion,
        cached: bool,
    ) -> Verdict {
        let floor = self.floor(since, fid);
        if version < floor.data {
            return Err((
                "CB-1",
                format!("{fid}: {version:?} shown after {floor:?}, cached {cached}"),
            ));
        }
        Ok(())
    }

    fn floor(&self, since: &Floors, fid: Fid) -> Floor {
        let then = since.files.get(&fid).copied().unwrap_or_default();
        // Changes that a loss of power took meanwhile need not be shown.
        if since.timeline == self.timeline { then } else { Floor::default() }
    }

    /// Checks that the data read with a version is that of the write which made this version, or of
    /// a write with unknown outcome.
    pub fn check_value(&self, fid: Fid, version: DataVersion, data: &[u8]) -> Verdict {
        let Some(file) = self.files.get(&fid) else { return Ok(()) };
        let words = words(data);
        let allowed = |op: &OpNo| {
            self.in_doubt.contains(op)
                || file.values.get(&version).is_some_and(|made| made.contains(op))
        };
        if words.iter().all(allowed) && (words.len() <= 1 || file.torn.contains(&version)) {
            return Ok(());
        }
        Err((
            "CB-1",
            format!("{fid}: {version:?} shows {words:?}, made by {:?}", file.values.get(&version)),
        ))
    }

    // Names.

    /// The maker of a name begins to create it.
    pub fn own_name(&mut self, name: &Name) {
        self.own.insert(
            name.clone(),
            OwnName { fid: None, made: None, removing: false, removed: None },
        );
    }

    /// Names with this prefix that are made and not being removed.
    pub fn own_names(&self, prefix: &[u8]) -> Vec<Name> {
        let live = |own: &OwnName| {
            own.made.is_some_and(|(timeline, _)| timeline == self.timeline) && !own.removing
        };
        let mine =
            self.own.iter().filter(|(name, own)| name.as_bytes().starts_with(prefix) && live(own));
        mine.map(|(name, _)| name.clone()).collect()
    }

    /// The creation was answered.
    pub fn own_made(&mut self, name: &Name, fid: Fid, dir_version: DataVersion, timeline: u32) {
        if let Some(own) = self.own.get_mut(name).filter(|_| timeline == self.timeline) {
            (own.fid, own.made) = (Some(fid), Some((timeline, dir_version)));
        }
    }

    /// The maker of the name begins to remove it.
    pub fn own_removing(&mut self, name: &Name) {
        if let Some(own) = self.own.get_mut(name) {
            own.removing = true;
        }
    }

    /// The removal was answered.
    pub fn own_removed(&mut self, name: &Name, dir_version: DataVersion, timeline: u32) {
        if let Some(own) = self.own.get_mut(name).filter(|_| timeline == self.timeline) {
            own.removed = Some((timeline, dir_version));
        }
    }

    /// The server reports that an own name does not exist, though it was made and not removed.
    pub fn own_missing(&self, name: &Name) -> Verdict {
        match self.own.get(name).and_then(|own| own.made) {
            Some((timeline, _)) if timeline == self.timeline => {
                Err(("EO-1", format!("{name:?} was made, and its one removal does not find it")))
            }
            _ => Ok(()),
        }
    }

    /// A change of a shared name begins; returns its index.
    pub fn shared_begins(&mut self, name: &Name, makes: bool, began: Time) -> usize {
        let changes = self.shared.entry(name.clone()).or_default();
        changes.push(NameChange { makes, began, done: None });
        changes.len() - 1
    }

    /// The change was answered; `happened`: it made or removed the name.
    pub fn shared_done(
        &mut self,
        name: &Name,
        at: usize,
        timeline: u32,
        happened: bool,
        now: Time,
    ) {
        if timeline != self.timeline {
            return;
        }
        let Some(change) = self.shared.get_mut(name).and_then(|changes| changes.get_mut(at)) else {
            return;
        };
        change.done = Some(now);
        if !happened {
            // It neither made nor removed the name, at any time.
            (change.makes, change.began) = (false, Time::NEVER);
        }
    }

    /// The present timeline.
    pub fn timeline(&self) -> u32 {
        self.timeline
    }

    /// A look-up that began at `began` shows that a name does not exist: checks that some client
    /// may have removed it.
    pub fn check_absent(
        &self,
        name: &Name,
        timeline: u32,
        began: Time,
        now: Time,
        cached: bool,
    ) -> Verdict {
        let Some(changes) = self.shared.get(name).filter(|_| timeline == self.timeline) else {
            return Ok(());
        };
        let made = changes
            .iter()
            .filter(|change| change.makes && change.done.is_some_and(|done| done < began));
        for made in made {
            let may_follow = |change: &&NameChange| {
                !change.makes
                    && change.began <= now
                    && change.done.is_none_or(|done| done >= made.began)
            };
            if !changes.iter().any(|change| may_follow(&change)) {
                return Err((
                    "CB-1",
                    format!("{name:?} is not shown, and was made: {made:?}, cached {cached}"),
                ));
            }
        }
        Ok(())
    }

    // Appends.

    /// An append begins.
    pub fn append_begins(&mut self, op: OpNo) {
        self.appends.insert(op, Append::default());
    }

    /// The append was answered.
    pub fn appended(&mut self, op: OpNo, offset: u64, stable: bool, timeline: u32) {
        self.appends.entry(op).or_default().acknowledged = Some((timeline, offset, stable));
    }

    fn check_log(&self, data: &[u8], power_lost: bool) -> Verdict {
        let mut seen: BTreeMap<OpNo, u64> = BTreeMap::new();
        for (index, record) in data.chunks(APPEND_BYTES).enumerate() {
            let Some(op) = words(record).first().copied() else { continue };
            let offset = (index * APPEND_BYTES) as u64;
            if let Some(before) = seen.insert(op, offset).filter(|_| op != OpNo(0)) {
                return Err((
                    "EO-1",
                    format!("append of {op:?} is there twice, at {before} and {offset}"),
                ));
            }
        }
        for (op, append) in &self.appends {
            let Some((timeline, offset, stable)) = append.acknowledged else { continue };
            let lost = timeline != self.timeline || power_lost;
            let found = seen.get(op);
            if found != Some(&offset) && (stable || !lost) {
                let rule = if lost { "DU-1" } else { "DU-2" };
                return Err((
                    rule,
                    format!("append of {op:?} was acknowledged at {offset}, and is at {found:?}"),
                ));
            }
        }
        Ok(())
    }

    // Locks.

    /// Records until when the client trusts its lease; checks the locks (LK-1).
    pub fn trusts(&mut self, client: usize, until: Time, now: Time) -> Verdict {
        self.trusted_until.insert(client, until);
        self.check_locks(now)
    }

    /// An application got a lock; checks that no other one conflicts (LK-1).
    pub fn locked(&mut self, belief: Belief, now: Time) -> Verdict {
        self.tally.locks += 1;
        self.locks.push(belief);
        self.check_locks(now)
    }

    /// The application gave the lock up, or knows that it is lost.
    pub fn unlocked(&mut self, client: usize, thread: usize) {
        self.locks.retain(|belief| (belief.client, belief.thread) != (client, thread));
    }

    /// The client is dead, or its session is over.
    pub fn locks_gone(&mut self, client: usize) {
        self.locks.retain(|belief| belief.client != client);
    }

    fn check_locks(&self, now: Time) -> Verdict {
        let trusted = |client| self.trusted_until.get(&client).is_some_and(|until| *until > now);
        let live: Vec<&Belief> =
            self.locks.iter().filter(|belief| trusted(belief.client)).collect();
        for (at, one) in live.iter().enumerate() {
            for other in &live[at + 1..] {
                if one.fid == other.fid && (one.exclusive || other.exclusive) {
                    return Err(("LK-1", format!("{one:?} and {other:?}")));
                }
            }
        }
        Ok(())
    }

    // The server's disk.

    /// The server has restarted with this on its disk: checks it, then makes it the new floor.
    pub fn restarted(
        &mut self,
        found: &DiskContent,
        log: Fid,
        power_lost: bool,
        now: Time,
    ) -> Verdict {
        self.tally.restarts += 1;
        self.tally.losses += u64::from(power_lost);
        let verdict = self.check_found(found, log, power_lost);
        if power_lost {
            self.begin_timeline(found, now);
            self.nest.begin_timeline(self.timeline);
        }
        verdict.and_then(|()| self.nest.check(&found.nest, now, true))
    }

    fn check_found(&self, found: &DiskContent, log: Fid, power_lost: bool) -> Verdict {
        let rule = if power_lost { "DU-1" } else { "DU-2" };
        for (fid, record) in &self.files {
            let floor = self.floors.get(fid).copied().unwrap_or_default();
            let least = if power_lost { record.stable } else { floor.data };
            let Some((status, data)) = found.files.get(fid) else { continue };
            if status.data_version < least {
                return Err((
                    rule,
                    format!("{fid}: {:?} found, {least:?} acknowledged", status.data_version),
                ));
            }
            if *fid != log && !fid.vnode.is_directory() {
                self.check_data_found(*fid, record, least, data, rule)?;
            }
        }
        if let Some((_, data)) = found.files.get(&log) {
            self.check_log(data, power_lost)?;
        }
        self.check_names_found(found, power_lost, rule)
    }

    /// Checks that each block is of the last acknowledged write, or of a later one.
    fn check_data_found(
        &self,
        fid: Fid,
        record: &FileRecord,
        least: DataVersion,
        data: &[u8],
        rule: &'static str,
    ) -> Verdict {
        let later: BTreeSet<OpNo> =
            record.values.range(least..).flat_map(|(_, ops)| ops.iter().copied()).collect();
        match words(data).iter().find(|op| !later.contains(op) && !self.in_doubt.contains(op)) {
            Some(op) => Err((rule, format!("{fid}: data of {op:?} found, {least:?} acknowledged"))),
            None => Ok(()),
        }
    }

    fn check_names_found(
        &self,
        found: &DiskContent,
        power_lost: bool,
        rule: &'static str,
    ) -> Verdict {
        let Some(dir) = self.files.keys().find(|fid| fid.vnode.is_directory()) else {
            return Ok(());
        };
        let stable = self.files.get(dir).map_or(DataVersion::NONE, |record| record.stable);
        let counts = |(timeline, version): (u32, DataVersion)| {
            timeline == self.timeline && (!power_lost || version <= stable)
        };
        for (name, own) in &self.own {
            let there = found.names.contains_key(name);
            if own.made.is_some_and(counts) && !own.removing && !there {
                return Err((rule, format!("{name:?} was made and is gone")));
            }
            if own.removed.is_some_and(counts) && there {
                return Err((rule, format!("{name:?} was removed and is back")));
            }
        }
        Ok(())
    }

    fn begin_timeline(&mut self, found: &DiskContent, now: Time) {
        self.timeline += 1;
        for (fid, record) in &mut self.files {
            let Some((status, data)) = found.files.get(fid) else {
                self.floors.remove(fid);
                continue;
            };
            // The disk may hold newer changes than those acknowledged.
            let floor = self.floors.entry(*fid).or_default();
            floor.data = floor.data.min(status.data_version);
            floor.status = floor.status.min(status.status_version);
            record.stable = record.stable.min(status.data_version);
            record.changes.clear();
            record.writes.clear();
            let present = words(data);
            record.torn.extend((present.len() > 1).then_some(status.data_version));
            record.values.entry(status.data_version).or_default().extend(present);
        }
        // A name that the disk has only because of a change without an answer: the client that
        // asked for it may show its cache until the repeated call is answered.
        let mut unanswered = BTreeSet::new();
        for (name, changes) in &mut self.shared {
            let was_made = changes.iter().any(|change| change.makes && change.done.is_some());
            // A change without an answer may still be executed.
            changes.retain(|change| change.done.is_none());
            if !was_made && changes.iter().any(|change| change.makes) {
                unanswered.insert(name.clone());
            }
        }
        for name in found.names.keys().filter(|name| !unanswered.contains(*name)) {
            let change = NameChange { makes: true, began: now, done: Some(now) };
            self.shared.entry(name.clone()).or_default().push(change);
        }
        for own in self.own.values_mut() {
            // The disk shows the outcome; the name is not used again.
            own.removing = true;
            (own.made, own.removed) = (None, None);
        }
    }

    /// The run is over and no call is under way: the disk must hold every acknowledged change.
    pub fn finished(&self, found: &DiskContent, log: Fid) -> Verdict {
        self.check_found(found, log, false)?;
        self.nest.check(&found.nest, Time::NEVER, false)
    }
}

/// Bytes of one record of the log.
pub const APPEND_BYTES: usize = 16;

/// The operations whose words occur in some data.
fn words(data: &[u8]) -> Vec<OpNo> {
    let whole = data
        .chunks_exact(8)
        .map(|word| OpNo(u64::from_le_bytes(word.try_into().unwrap_or_default())));
    let mut list: Vec<OpNo> = whole.collect();
    list.sort_unstable();
    list.dedup();
    if list.is_empty() {
        list.push(OpNo(0));
    }
    list
}

/// Data of a given length that names its operation in each word.
pub fn data_of(op: OpNo, bytes: usize) -> Vec<u8> {
    op.0.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

impl SessionTally {
    /// Adds another run's counters.
    pub fn add(&mut self, other: &SessionTally) {
        self.done += other.done;
        self.unknown += other.unknown;
        self.cached += other.cached;
        self.restarts += other.restarts;
        self.losses += other.losses;
        self.locks += other.locks;
        self.sessions_lost += other.sessions_lost;
        self.delegations += other.delegations;
        self.own_changes += other.own_changes;
    }
}
