//! The tables under delegations: answering changes, asking for what is missing, recalls.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lease::CallStart;
use parking_lot::MutexGuard;
use types::{Answer, Call, Fid, Name, Status, Timestamp, VnodeSlots};

use super::{Asked, CachedName, Local, LocalAnswers, LocalCaller, Tables};
use crate::data::FileBytes;

/// A precondition that is missing for an answer here.
pub(crate) enum Missing {
    Delegation(Fid),
    Slots(Fid),
    Page(Fid),
    Rights(Fid),
}

impl Tables {
    /// All delegations end; returns those to be given back, in case the server still has them on
    /// record.
    pub fn end_delegations(&mut self) -> Vec<Fid> {
        self.slots.clear();
        let mut ended = Vec::new();
        for (fid, node) in self.nodes.each_whole() {
            let Some(delegation) = &mut node.delegation else { continue };
            if delegation.end() {
                ended.push(*fid);
            }
        }
        ended
    }

    pub fn children_of(&self, dirs: &[Fid]) -> Vec<Arc<FileBytes>> {
        let below = |fid: &Fid| {
            self.nodes
                .whole(fid)
                .and_then(|node| node.sole)
                .is_some_and(|(dir, _)| dirs.contains(&dir))
        };
        self.files.iter().filter(|(fid, _)| below(fid)).map(|(_, file)| Arc::clone(file)).collect()
    }

    /// The precondition that is missing for an answer to this call here, if one call can bring it.
    pub fn missing(&self, uid: u32, call: &Call) -> Option<Missing> {
        let (dirs, names): (&[Fid], &[(Fid, &Name)]) = match call {
            Call::Make { dir, .. } => (&[*dir], &[]),
            Call::Remove { dir, name, .. } => (&[*dir], &[(*dir, name)]),
            Call::Rename { from_dir, from, to_dir, to, .. } => {
                (&[*from_dir, *to_dir], &[(*from_dir, from), (*to_dir, to)])
            }
            _ => return None,
        };
        let delegation =
            |dir: &Fid| self.nodes.whole(dir).and_then(|node| node.delegation.as_ref());
        if let Some(dir) = dirs.iter().find(|dir| self.nodes.delegation(**dir).is_none()) {
            let all = dirs.iter().all(|dir| {
                self.nodes.delegation(*dir).is_some()
                    || delegation(dir).is_some_and(|delegation| delegation.is_wanted())
            });
            return (all && self.trusted()).then_some(Missing::Delegation(*dir));
        }
        let judged = |dir: &&Fid| {
            let listed = self
                .nodes
                .whole(dir)
                .and_then(|node| node.status)
                .is_some_and(|status| status.by_list);
            !listed || self.rights.of(**dir, uid).is_some()
        };
        if let Some(dir) = dirs.iter().find(|dir| !judged(dir)) {
            return Some(Missing::Rights(*dir));
        }
        if matches!(call, Call::Make { .. }) {
            return (self.slots.left(dirs[0].volume) == 0).then_some(Missing::Slots(dirs[0]));
        }
        let strange = |(dir, name): &&(Fid, &Name)| {
            let known = self.resolve(*dir, name);
            known.is_some_and(|fid| !self.nodes.covers(fid))
                && delegation(dir).is_some_and(|delegation| !delegation.listed.end)
        };
        names.iter().find(strange).map(|(dir, _)| Missing::Page(*dir))
    }

    /// The service's future answer to this call at the time `at`; `None` if the service must be
    /// asked.
    pub fn answer_here(
        &mut self,
        caller: &LocalCaller<'_>,
        call: &Call,
        at: Timestamp,
    ) -> Option<Local> {
        if !self.trusted() || self.blind > 0 {
            return None;
        }
        let Tables { nodes, rights, slots, .. } = self;
        LocalAnswers { nodes, rights, slots, caller, at }.answer(call)
    }

    /// The files of a call, and whether these are all: a name that it removes may be unknown here.
    pub fn concerned(&self, call: &mut Call) -> (Vec<Fid>, bool) {
        let mut fids: Vec<Fid> = call.fids_mut().into_iter().map(|fid| *fid).collect();
        let names: &[(Fid, &Name)] = match call {
            Call::Remove { dir, name, .. } => &[(*dir, name)],
            Call::Rename { from_dir, from, to_dir, to, .. } => &[(*from_dir, from), (*to_dir, to)],
            _ => &[],
        };
        let mut all = true;
        for (dir, name) in names {
            match self.nodes.known(*dir, name) {
                CachedName::File(fid) => fids.push(fid),
                CachedName::Absent => {}
                CachedName::Unknown => all = false,
            }
        }
        (fids, all)
    }

    /// A call that changes something leaves for the server. Returns its files, and whether it may
    /// concern others.
    pub fn leave(&mut self, call: &mut Call) -> (Vec<Fid>, bool) {
        let (fids, all) = self.concerned(call);
        fids.iter().for_each(|fid| self.nodes.node(*fid).away += 1);
        self.blind += u32::from(!all);
        (fids, !all)
    }

    /// Its answer has been entered.
    pub fn come_back(&mut self, fids: &[Fid], blind: bool) {
        for fid in fids {
            let node = self.nodes.node(*fid);
            assert!(node.away > 0, "DE-5: a call that comes back had left");
            node.away -= 1;
        }
        assert!(self.blind >= u32::from(blind), "DE-5: a call that comes back had left");
        self.blind -= u32::from(blind);
    }

    /// A delegation, or more slots under one, are about to be asked for; `None`: not now.
    pub fn begin_asking(&mut self, dir: Fid) -> Option<CallStart> {
        let delegation = self.nodes.node(dir).delegation.get_or_insert_default();
        delegation.begin_asking().then(|| self.holder.begin())
    }

    /// The server answered [`Tables::begin_asking`]: `granted`, or a refusal.
    pub fn asked(
        &mut self,
        dir: Fid,
        snapshot: CallStart,
        granted: Option<(Status, VnodeSlots)>,
        pause: Duration,
    ) -> Asked {
        if let Some((status, slots)) = granted {
            self.put(snapshot, status);
            self.add_slots(dir, snapshot, slots);
        }
        let promised = self.holder.promised(dir, snapshot) && self.nodes.node(dir).valid;
        let delegation = self.nodes.node(dir).delegation.get_or_insert_default();
        let asked = delegation.asked(granted.is_some(), promised, pause);
        if asked == Asked::Held {
            self.nodes.hold_delegation(dir);
        }
        asked
    }

    /// Enters granted slots, if they count still.
    pub fn add_slots(&mut self, dir: Fid, snapshot: CallStart, slots: VnodeSlots) {
        if !self.holder.is_void(snapshot) {
            self.slots.add(dir.volume, slots);
        }
    }

    /// Called before a chain is sent that makes something in `made`: whether it is time to ask for
    /// more slots.
    pub fn wants_slots(&self, made: Fid) -> bool {
        self.slots.left(made.volume) < SLOTS_FEW && self.nodes.delegation(made).is_some()
    }
}

/// An answer that was given here, under the lock of the tables as it was computed.
pub(crate) type Answered<'a> = (MutexGuard<'a, Tables>, CallStart, Answer);

/// The time of changes that are answered here.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

/// With fewer slots left, the client asks for more, together with a chain that is sent anyway.
const SLOTS_FEW: u64 = 512;
