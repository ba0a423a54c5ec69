//! Delegations: when the client asks for them, what they cover, and how they are returned
//! (`docs/spec/delegation.md`).
//!
//! A directory's delegation is *at home* (with the server), *asked* for, *held*, or *recalled*:
//! then nothing is answered here any more (DE-3), and a thread sends the journal and returns it.
//! Each time it is held it is another *generation*. A sole child records the directory and the
//! generation that cover it, so the end of a delegation changes nothing in the children. The client
//! never takes more for covered than the server does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use lease::CallStart;
use parking_lot::MutexGuard;
use types::limits::HOLD_FIDS_MAX;
use types::{Answer, Call, Caller, Fid, Kind, Name, Timestamp, VnodeSlots, VolumeId};

use crate::core::Core;
use crate::dir_names::CachedName;
use crate::extents::Chunk;
use crate::file_data::FileBytes;
use crate::journal::{JournalEntry, fids};
use crate::local_answers::Local;
use crate::node_tables::Tables;
use crate::{Error, RequestContext};

pub(crate) type Generation = u64;

/// Own changes in a row after which the client asks for a directory at the next one.
const OWN_CHANGES: u32 = 1;
/// Longest pause after a recall, as a multiple of the first one.
const PAUSE_FACTOR_MAX: u32 = 64;
/// With fewer slots left, the client asks for more, together with a chain that is sent anyway.
const SLOTS_FEW: u64 = 512;
/// Preconditions that may be missing for an answer here: the delegation, slots, a page of the
/// listing, the caller's rights.
const IMPROVEMENTS_MAX: usize = 4;

#[derive(Debug, Default)]
enum State {
    #[default]
    Home,
    Asked {
        recalled: bool,
    },
    Held(Generation),
    Recalled,
}

#[derive(Debug, Default)]
pub(crate) struct Delegation {
    state: State,
    /// Own changes since the last one of another client.
    own_changes: u32,
    /// The last own change removed a name.
    removes: bool,
    /// The client does not ask for it earlier.
    not_before: Option<Instant>,
    pause: Duration,
    /// How far the directory was listed under the delegation, so that the server reports which
    /// children are sole.
    listed: Listed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    cookie: u64,
    end: bool,
}

impl Delegation {
    /// The generation of the delegation, if it is held.
    pub fn generation(&self) -> Option<Generation> {
        match self.state {
            State::Held(generation) => Some(generation),
            State::Home | State::Asked { .. } | State::Recalled => None,
        }
    }

    /// Whether the server may assume that this client holds it.
    pub fn is_out(&self) -> bool {
        !matches!(self.state, State::Home)
    }

    /// Another client changed the directory.
    pub fn others_change(&mut self) {
        self.own_changes = 0;
    }

    fn is_wanted(&self) -> bool {
        let may = self.not_before.is_none_or(|at| at <= Instant::now());
        matches!(self.state, State::Home) && self.own_changes >= OWN_CHANGES && may
    }

    fn become_held(&mut self, generation: Generation) {
        self.state = State::Held(generation);
        self.listed = Listed::default();
    }

    /// The client does not ask for it again for a while, twice as long each time, unless the last
    /// pause was long ago.
    fn pause_asking(&mut self, first: Duration) {
        let now = Instant::now();
        let long_ago = self.not_before.is_none_or(|at| now > at + self.pause * 4);
        self.pause = if long_ago { first } else { (self.pause * 2).min(first * PAUSE_FACTOR_MAX) };
        self.not_before = Some(now + self.pause);
        self.own_changes = 0;
    }
}

impl Tables {
    /// The generation of `dir`'s delegation, if this client holds it.
    pub fn delegation(&self, dir: Fid) -> Option<Generation> {
        self.nodes.whole(&dir)?.delegation.as_ref()?.generation()
    }

    /// Whether a delegation covers the file: its own, or that of the directory whose sole child it
    /// is.
    pub fn covers(&self, fid: Fid) -> bool {
        let sole = || {
            let (dir, generation) = self.nodes.whole(&fid)?.sole?;
            Some(self.delegation(dir)? == generation)
        };
        self.delegation(fid).is_some() || sole() == Some(true)
    }

    /// Enters that the file is a sole child, from the answer to a call that was sent when `dir` had
    /// this delegation.
    pub fn put_sole(&mut self, dir: Fid, delegation: Option<Generation>, fid: Fid) {
        let Some(generation) = delegation.filter(|_| self.delegation(dir) == delegation) else {
            return;
        };
        if self.delegation(fid).is_none() {
            self.node(fid).sole = Some((dir, generation));
        }
    }

    /// Takes a slot for a new file; returns the file's fid with it.
    pub fn take_slot(&mut self, volume: VolumeId, directory: bool) -> Option<(u64, Fid)> {
        let runs = self.slots.get_mut(&volume)?;
        let run = runs.last_mut()?;
        let slot = run.take()?;
        let fid = run.fid(volume, slot, directory);
        if run.count == 0 {
            runs.pop();
        }
        Some((slot, fid))
    }

    fn add_slots(&mut self, volume: VolumeId, slots: VnodeSlots) {
        if slots.count > 0 {
            self.slots.entry(volume).or_default().push(slots);
        }
    }

    fn slots_left(&self, volume: VolumeId) -> u64 {
        self.slots.get(&volume).into_iter().flatten().map(|range| u64::from(range.count)).sum()
    }

    /// The server executed an own change in `dir`.
    pub fn own_change(&mut self, dir: Fid, removes: bool) {
        let delegation = self.node(dir).delegation.get_or_insert_default();
        delegation.own_changes += 1;
        delegation.removes = removes;
    }

    fn hold_delegation(&mut self, dir: Fid) -> Generation {
        self.generations += 1;
        let generation = self.generations;
        let node = self.node(dir);
        node.sole = None;
        node.delegation.get_or_insert_default().become_held(generation);
        generation
    }

    /// The server recalls it. Returns whether it is to be returned now: otherwise that is under
    /// way, or happens when it arrives.
    pub fn recall(&mut self, dir: Fid) -> bool {
        let delegation = self.node(dir).delegation.get_or_insert_default();
        match &mut delegation.state {
            State::Asked { recalled } => {
                *recalled = true;
                false
            }
            State::Recalled => false,
            State::Held(_) | State::Home => {
                delegation.state = State::Recalled;
                true
            }
        }
    }

    /// All delegations end; returns those to be given back, in case the server still has them on
    /// record.
    pub fn end_delegations(&mut self) -> Vec<Fid> {
        self.slots.clear();
        let mut ended = Vec::new();
        for (fid, node) in self.nodes.each_whole() {
            let Some(delegation) = &mut node.delegation else { continue };
            match &mut delegation.state {
                State::Asked { recalled } => *recalled = true,
                State::Held(_) => {
                    delegation.state = State::Recalled;
                    ended.push(*fid);
                }
                State::Home | State::Recalled => {}
            }
        }
        ended
    }

    fn children_of(&self, dirs: &[Fid]) -> Vec<Arc<FileBytes>> {
        let below = |fid: &Fid| {
            self.nodes
                .whole(fid)
                .and_then(|node| node.sole)
                .is_some_and(|(dir, _)| dirs.contains(&dir))
        };
        self.files.iter().filter(|(fid, _)| below(fid)).map(|(_, file)| Arc::clone(file)).collect()
    }
}

enum Missing {
    Delegation(Fid),
    Slots(Fid),
    Page(Fid),
    Rights(Fid),
}

/// An answer that was given here, under the lock of the tables as it was computed.
pub(crate) type Answered<'a> = (MutexGuard<'a, Tables>, CallStart, Answer);

impl Core {
    /// Answers a change here if possible; asks for the delegation if it is time for that.
    pub fn answer_under_delegation(
        &self,
        request: &RequestContext<'_>,
        call: &Call,
    ) -> Option<Answered<'_>> {
        if !self.config.delegations {
            return None;
        }
        for _ in 0..IMPROVEMENTS_MAX {
            if let Some(answered) = self.answer_here(request.caller, call) {
                return Some(answered);
            }
            let missing = self.missing(request.caller.uid, call)?;
            let better = match missing {
                Missing::Delegation(dir) | Missing::Slots(dir) => self.ask(request, dir),
                Missing::Page(dir) => self.list_sole(request, dir),
                Missing::Rights(dir) => self.rights(request, dir).is_ok(),
            };
            if !better {
                return None;
            }
        }
        self.answer_here(request.caller, call)
    }

    /// Answers a change here, if a delegation covers it.
    pub fn answer_here(&self, caller: &Caller, call: &Call) -> Option<Answered<'_>> {
        self.wait_for_journal();
        let mut tables = self.tables.lock();
        let at = wall();
        let local = tables.answer_here(&self.local_caller(caller), call, at)?;
        let (_, answer) = self.record(&mut tables, caller, call, at, local, None);
        let snapshot = tables.holder.begin();
        Some((tables, snapshot, answer))
    }

    /// Enters an answered change into the journal and its effects into the tables.
    pub fn record(
        &self,
        tables: &mut Tables,
        caller: &Caller,
        call: &Call,
        at: Timestamp,
        local: Local,
        data: Option<(Arc<FileBytes>, Chunk)>,
    ) -> (u64, Answer) {
        let Local { answer, slot } = local;
        if let Some((number, answer)) = self.journal.merge(caller, call, at, &answer) {
            if let Answer::Status(status) = answer {
                let node = tables.node(status.fid);
                node.status = Some(status);
                node.pending = number;
            }
            return (number, answer);
        }
        let about = fids(&answer);
        let pending =
            about.first().and_then(|fid| tables.nodes.whole(fid)).map_or(0, |node| node.pending);
        let before = if pending > self.journal.landed() { pending } else { 0 };
        let entry = JournalEntry {
            number: 0,
            before,
            since: Instant::now(),
            caller: caller.clone(),
            at,
            slot,
            call: call.clone(),
            expected: answer.clone(),
            data,
            cut: false,
        };
        let number = self.journal.push(entry);
        about.into_iter().for_each(|fid| tables.node(fid).pending = number);
        match (&answer, call) {
            (Answer::Made { status, .. }, _) if status.kind == Kind::Directory => {
                tables.hold_delegation(status.fid);
            }
            (Answer::Made { status, dir, .. }, _) => {
                let delegation = tables.delegation(dir.fid);
                tables.put_sole(dir.fid, delegation, status.fid);
            }
            (Answer::Removed { status, .. }, _) if status.kind == Kind::Directory => {
                tables.node(status.fid).delegation = None;
            }
            (Answer::Removed { status, .. }, Call::Remove { hold: false, .. })
                if status.links == 0 && before > 0 =>
            {
                let cut = self.journal.cut();
                self.cuts.lock().extend(cut);
            }
            _ => {}
        }
        (number, answer)
    }

    fn missing(&self, uid: u32, call: &Call) -> Option<Missing> {
        let tables = self.tables.lock();
        let (dirs, names): (&[Fid], &[(Fid, &Name)]) = match call {
            Call::Make { dir, .. } => (&[*dir], &[]),
            Call::Remove { dir, name, .. } => (&[*dir], &[(*dir, name)]),
            Call::Rename { from_dir, from, to_dir, to, .. } => {
                (&[*from_dir, *to_dir], &[(*from_dir, from), (*to_dir, to)])
            }
            _ => return None,
        };
        let delegation =
            |dir: &Fid| tables.nodes.whole(dir).and_then(|node| node.delegation.as_ref());
        if let Some(dir) = dirs.iter().find(|dir| tables.delegation(**dir).is_none()) {
            let all = dirs.iter().all(|dir| {
                tables.delegation(*dir).is_some()
                    || delegation(dir).is_some_and(|delegation| delegation.is_wanted())
            });
            return (all && tables.trusted()).then_some(Missing::Delegation(*dir));
        }
        let judged = |dir: &&Fid| {
            let listed = tables
                .nodes
                .whole(dir)
                .and_then(|node| node.status)
                .is_some_and(|status| status.by_list);
            !listed || tables.rights.of(**dir, uid).is_some()
        };
        if let Some(dir) = dirs.iter().find(|dir| !judged(dir)) {
            return Some(Missing::Rights(*dir));
        }
        if matches!(call, Call::Make { .. }) {
            return (tables.slots_left(dirs[0].volume) == 0).then_some(Missing::Slots(dirs[0]));
        }
        let strange = |(dir, name): &&(Fid, &Name)| {
            let known = tables.resolve(*dir, name);
            known.is_some_and(|fid| !tables.covers(fid))
                && delegation(dir).is_some_and(|delegation| !delegation.listed.end)
        };
        names.iter().find(strange).map(|(dir, _)| Missing::Page(*dir))
    }

    /// Asks for a delegation, or for more slots under one. Returns whether the answer brought
    /// something new.
    fn ask(&self, request: &RequestContext<'_>, dir: Fid) -> bool {
        let snapshot = {
            let mut tables = self.tables.lock();
            let delegation = tables.node(dir).delegation.get_or_insert_default();
            match delegation.state {
                State::Home => delegation.state = State::Asked { recalled: false },
                State::Held(_) => {}
                State::Asked { .. } | State::Recalled => return false,
            }
            tables.holder.begin()
        };
        let answer = self.call(request, Call::Delegate { fid: dir });
        let mut tables = self.tables.lock();
        let granted = match answer {
            Ok(Answer::Delegation { status, slots }) => {
                tables.put(snapshot, status);
                if !tables.holder.is_void(snapshot) {
                    tables.add_slots(dir.volume, slots);
                }
                true
            }
            Ok(_) | Err(_) => false,
        };
        let promised = tables.holder.promised(dir, snapshot) && tables.node(dir).valid;
        let pause = self.config.recall_pause;
        let delegation = tables.node(dir).delegation.get_or_insert_default();
        match delegation.state {
            State::Asked { recalled: false } if granted && promised => {
                tables.hold_delegation(dir);
                drop(tables);
                self.first_blanks(dir);
                true
            }
            State::Asked { .. } if granted => {
                delegation.state = State::Recalled;
                drop(tables);
                self.give_back_soon(vec![dir]);
                false
            }
            State::Asked { .. } => {
                delegation.state = State::Home;
                delegation.pause_asking(pause);
                false
            }
            State::Held(_) => granted,
            State::Home | State::Recalled => false,
        }
    }

    /// Lists the next page of a delegated directory, to learn which children are sole. Returns
    /// whether there was one.
    fn list_sole(&self, request: &RequestContext<'_>, dir: Fid) -> bool {
        let delegation = |tables: &mut Tables| {
            tables
                .node(dir)
                .delegation
                .as_ref()
                .map_or(Listed::default(), |delegation| delegation.listed)
        };
        let from = delegation(&mut self.tables.lock());
        let (cookie, end) = match self.list_page(request, dir, from.cookie) {
            Ok((cookie, end)) => (cookie, end),
            Err(_) => (from.cookie, true),
        };
        let mut tables = self.tables.lock();
        let now = delegation(&mut tables);
        if let Some(delegation) =
            tables.node(dir).delegation.as_mut().filter(|_| now.cookie == from.cookie)
        {
            delegation.listed = Listed { cookie, end };
        }
        true
    }

    /// Called before a directory is listed from its beginning: if the last change of its parent
    /// removed a name, an application is removing a tree. The server then reports of each entry
    /// whether it is sole.
    pub fn ask_before_listing(&self, request: &RequestContext<'_>, dir: Fid) {
        let above_removes = || {
            let tables = self.tables.lock();
            let above = tables.nodes.whole(&dir)?.sole?.0;
            let removes = tables.nodes.whole(&above)?.delegation.as_ref()?.removes;
            let may = tables.nodes.whole(&dir)?.delegation.as_ref().is_none_or(|delegation| {
                matches!(delegation.state, State::Home)
                    && delegation.not_before.is_none_or(|at| at <= Instant::now())
            });
            Some(removes && may && tables.covers(dir))
        };
        if self.config.delegations && above_removes() == Some(true) {
            self.ask(request, dir);
        }
    }

    /// Called before a chain with these entries is sent: the directory to ask for more slots with,
    /// if few are left.
    pub fn slots_wanted(&self, chain: &[JournalEntry]) -> Option<Fid> {
        let made = chain.iter().rev().find_map(|entry| match &entry.call {
            Call::Make { dir, .. } => Some(*dir),
            _ => None,
        })?;
        let tables = self.tables.lock();
        (tables.slots_left(made.volume) < SLOTS_FEW && tables.delegation(made).is_some())
            .then_some(made)
    }

    /// Enters the answer to the call for [`Core::slots_wanted`].
    pub fn slots_came(&self, dir: Fid, snapshot: CallStart, answer: &Answer) {
        let mut tables = self.tables.lock();
        if let Answer::Delegation { slots, .. } = answer
            && !tables.holder.is_void(snapshot)
        {
            tables.add_slots(dir.volume, *slots);
        }
    }
}

impl Core {
    /// The server recalls these: from now on nothing is answered under them.
    pub fn recalled(&self, dirs: &[Fid]) {
        let mut tables = self.tables.lock();
        let now: Vec<Fid> = dirs.iter().copied().filter(|dir| tables.recall(*dir)).collect();
        drop(tables);
        self.give_back_soon(now);
    }

    /// Sends the journal and returns these delegations, in the background: a thread that receives
    /// breaks must not wait for that.
    pub fn give_back_soon(&self, dirs: Vec<Fid>) {
        if !dirs.is_empty()
            && let Some(core) = self.this.get().and_then(Weak::upgrade)
        {
            self.senders.run(move || core.give_back(&dirs));
        }
    }

    pub fn give_back(self: &Arc<Self>, dirs: &[Fid]) {
        self.withdraw_uncovered();
        // The client that asks must see every closed file's writes; with handles whose close is not
        // reported that is all writes.
        let files = self.tables.lock().children_of(dirs);
        for file in files.iter().filter(|file| !file.is_clean()) {
            if self.send_all(file, None).is_err() {
                tracing::warn!(fid = %file.fid, "cannot send written bytes before a \
                    delegation is returned");
            }
        }
        // Interrupted is the only error, and nothing interrupts this call.
        let _ = self.flush_all(None);
        for fids in dirs.chunks(HOLD_FIDS_MAX) {
            match self.remote.call(&Caller::ROOT, Call::Return { fids: fids.to_vec() }, None) {
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "cannot return delegations"),
            }
        }
        let mut tables = self.tables.lock();
        for dir in dirs {
            let Some(delegation) =
                tables.nodes.whole_mut(dir).and_then(|node| node.delegation.as_mut())
            else {
                continue;
            };
            delegation.state = State::Home;
            delegation.pause_asking(self.config.recall_pause);
        }
    }
}

/// The files of a call, and whether these are all: a name that it removes may be unknown here.
fn concerned(tables: &Tables, call: &mut Call) -> (Vec<Fid>, bool) {
    let mut fids: Vec<Fid> = call.fids_mut().into_iter().map(|fid| *fid).collect();
    let names: &[(Fid, &Name)] = match call {
        Call::Remove { dir, name, .. } => &[(*dir, name)],
        Call::Rename { from_dir, from, to_dir, to, .. } => &[(*from_dir, from), (*to_dir, to)],
        _ => &[],
    };
    let mut all = true;
    for (dir, name) in names {
        match tables.known(*dir, name) {
            CachedName::File(fid) => fids.push(fid),
            CachedName::Absent => {}
            CachedName::Unknown => all = false,
        }
    }
    (fids, all)
}

/// An own call that changes files at the server: meanwhile nothing about them is answered here.
pub(crate) struct Away<'a> {
    core: &'a Core,
    fids: Vec<Fid>,
    /// The files are not all known: meanwhile nothing at all is answered here.
    blind: bool,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let mut tables = self.core.tables.lock();
        for fid in &self.fids {
            tables.node(*fid).away -= 1;
        }
        tables.blind -= u32::from(self.blind);
    }
}

impl Core {
    /// Called before `call`, which changes something, is sent; the result lives until the answer
    /// has been entered. It is not dropped under the lock of the tables.
    pub fn away(&self, call: &mut Call) -> Away<'_> {
        let mut tables = self.tables.lock();
        let (fids, all) = concerned(&tables, call);
        for fid in &fids {
            tables.node(*fid).away += 1;
        }
        tables.blind += u32::from(!all);
        Away { core: self, fids, blind: !all }
    }

    /// Sends the changes that were answered here about the files of `call`; before a change of
    /// names or status it sends all changes, so that no later change outlives an earlier one.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn send_related(&self, request: &RequestContext<'_>, call: &mut Call) -> Result<(), Error> {
        let until = {
            let tables = self.tables.lock();
            let landed = tables.landed.load(Ordering::Acquire);
            let pending = |fid: Fid| tables.nodes.whole(&fid).map_or(0, |node| node.pending);
            let data =
                matches!(call, Call::Write { .. } | Call::Allocate { .. } | Call::AdoptBody { .. });
            match concerned(&tables, call) {
                _ if call.changes() && !data => Some(self.journal.last()),
                (fids, true) => {
                    fids.into_iter().map(pending).filter(|number| *number > landed).max()
                }
                (_, false) => Some(self.journal.last()),
            }
        };
        until.map_or(Ok(()), |until| self.flush_until(until, request.cancel))
    }
}

/// The time of changes that are answered here.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
