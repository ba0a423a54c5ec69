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
use std::time::Instant;

use lease::CallStart;
use types::limits::HOLD_FIDS_MAX;
use types::{Answer, Call, Caller, Fid, Kind, Name, Timestamp};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::core::Core;
use crate::data::extents::Chunk;
use crate::data::file_data::FileBytes;
use crate::names::delegation::{DelegationState, Listed};
use crate::names::delegations::{Answered, concerned, wall};
use crate::names::local_answers::Local;
use crate::names::node_tables::Tables;
use crate::writeback::journal::{JournalEntry, fids_of};

/// With fewer slots left, the client asks for more, together with a chain that is sent anyway.
const SLOTS_FEW: u64 = 512;

/// Preconditions that may be missing for an answer here: the delegation, slots, a page of the
/// listing, the caller's rights.
const IMPROVEMENTS_MAX: usize = 4;

enum Missing {
    Delegation(Fid),
    Slots(Fid),
    Page(Fid),
    Rights(Fid),
}

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
        let about = fids_of(&answer);
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
                DelegationState::Home => {
                    delegation.state = DelegationState::Asked { recalled: false }
                }
                DelegationState::Held(_) => {}
                DelegationState::Asked { .. } | DelegationState::Recalled => return false,
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
            DelegationState::Asked { recalled: false } if granted && promised => {
                tables.hold_delegation(dir);
                drop(tables);
                self.first_blanks(dir);
                true
            }
            DelegationState::Asked { .. } if granted => {
                delegation.state = DelegationState::Recalled;
                drop(tables);
                self.give_back_soon(vec![dir]);
                false
            }
            DelegationState::Asked { .. } => {
                delegation.state = DelegationState::Home;
                delegation.pause_asking(pause);
                false
            }
            DelegationState::Held(_) => granted,
            DelegationState::Home | DelegationState::Recalled => false,
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
                matches!(delegation.state, DelegationState::Home)
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
            delegation.state = DelegationState::Home;
            delegation.pause_asking(self.config.recall_pause);
        }
    }
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
