//! What delegations cover.

use std::sync::Arc;
use std::time::SystemTime;

use lease::CallStart;
use parking_lot::MutexGuard;
use types::{Answer, Call, Fid, Name, Timestamp, VnodeSlots, VolumeId};

use crate::data::file_data::FileBytes;
use crate::names::delegation::{DelegationState, Generation};
use crate::names::dir_names::CachedName;
use crate::names::node_tables::Tables;

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

    pub fn add_slots(&mut self, volume: VolumeId, slots: VnodeSlots) {
        if slots.count > 0 {
            self.slots.entry(volume).or_default().push(slots);
        }
    }

    pub fn slots_left(&self, volume: VolumeId) -> u64 {
        self.slots.get(&volume).into_iter().flatten().map(|range| u64::from(range.count)).sum()
    }

    /// The server executed an own change in `dir`.
    pub fn own_change(&mut self, dir: Fid, removes: bool) {
        let delegation = self.node(dir).delegation.get_or_insert_default();
        delegation.own_changes += 1;
        delegation.removes = removes;
    }

    pub fn hold_delegation(&mut self, dir: Fid) -> Generation {
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
            DelegationState::Asked { recalled } => {
                *recalled = true;
                false
            }
            DelegationState::Recalled => false,
            DelegationState::Held(_) | DelegationState::Home => {
                delegation.state = DelegationState::Recalled;
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
                DelegationState::Asked { recalled } => *recalled = true,
                DelegationState::Held(_) => {
                    delegation.state = DelegationState::Recalled;
                    ended.push(*fid);
                }
                DelegationState::Home | DelegationState::Recalled => {}
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
}

/// The files of a call, and whether these are all: a name that it removes may be unknown here.
pub(crate) fn concerned(tables: &Tables, call: &mut Call) -> (Vec<Fid>, bool) {
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

/// An answer that was given here, under the lock of the tables as it was computed.
pub(crate) type Answered<'a> = (MutexGuard<'a, Tables>, CallStart, Answer);

/// The time of changes that are answered here.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
