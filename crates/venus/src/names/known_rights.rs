//! The rights of this machine's users that are known (`delegation/rights.rs`).

use std::collections::HashMap;

use guard::Rights;
use types::{BreakItem, Fid, Kind, Status};

/// Most entries of each table; beyond it the table is cleared and rights are asked for anew.
const KNOWN_MAX: usize = 1 << 16;

/// See the head of the file. Under the lock of the tables.
#[derive(Default)]
pub(crate) struct KnownRights {
    pub rights: HashMap<Fid, Vec<(u32, Rights)>>,
    /// For each file without a list of its own, the directory whose list decides.
    ruled: HashMap<Fid, Fid>,
    /// Counts changes of a local user's identity in the cell.
    pub logins: u64,
}

impl KnownRights {
    pub fn on_break(&mut self, items: &[BreakItem]) {
        if items.iter().any(|item| item.fid == Fid::rights(item.fid.volume)) {
            self.clear();
        }
        for item in items {
            self.rights.remove(&item.fid);
            self.ruled.remove(&item.fid);
        }
    }

    pub fn clear(&mut self) {
        self.rights.clear();
        self.ruled.clear();
    }

    /// A local user's identity in the cell changed.
    pub fn on_login(&mut self) {
        self.logins += 1;
        self.clear();
    }

    pub fn ruler(&self, fid: Fid) -> Option<Fid> {
        if fid.vnode.is_directory() { Some(fid) } else { self.ruled.get(&fid).copied() }
    }

    pub fn of(&self, fid: Fid, uid: u32) -> Option<Rights> {
        let known = self.rights.get(&self.ruler(fid)?)?;
        known.iter().find(|(of, _)| *of == uid).map(|(_, rights)| *rights)
    }

    pub fn insert(&mut self, dir: Fid, uid: u32, rights: Rights) {
        if self.rights.len() >= KNOWN_MAX {
            self.rights.clear();
        }
        let known = self.rights.entry(dir).or_default();
        known.retain(|(of, _)| *of != uid);
        known.push((uid, rights));
    }

    /// Something was made in `dir`. The list of `dir` decides for it, or its own list is a copy of
    /// that: so its maker has the same rights there as in `dir`. As its owner the maker has no
    /// fewer.
    pub fn made_in(&mut self, dir: Fid, made: &Status, uid: u32) {
        if made.kind != Kind::Directory {
            self.rule(made.fid, dir);
        } else if let Some(rights) = self.of(dir, uid) {
            self.insert(made.fid, uid, rights);
        }
    }

    pub fn rule(&mut self, fid: Fid, by: Fid) {
        if self.ruled.len() >= KNOWN_MAX {
            self.ruled.clear();
        }
        self.ruled.insert(fid, by);
    }
}
