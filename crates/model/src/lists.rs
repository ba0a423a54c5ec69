//! Access lists in the simplest form: a caller is a set of numbers, a list is two tables, and
//! rights are found by walking up.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{Answer, Caller, Fault, Fid, Kind, PrincipalId};

use crate::access::RequestedAccess;
use crate::tree::{ModelContext, ModelTree};

const READ: u32 = 1;
const WRITE: u32 = 2;
const INSERT: u32 = 4;
const LOOKUP: u32 = 8;
const DELETE: u32 = 16;
const ADMINISTER: u32 = 64;
/// Bits of the rights `rlidwka`.
const ALL: u32 = 127;
/// These rights have no meaning in a single file's list.
const OF_DIRECTORIES: u32 = LOOKUP | INSERT | DELETE;

/// An access list, encoded and decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    bytes: Bytes,
    given: BTreeMap<PrincipalId, u32>,
    denied: BTreeMap<PrincipalId, u32>,
}

impl List {
    /// Decodes a version, the two counts, then number and rights of each entry.
    fn read(bytes: &Bytes) -> Result<List, Fault> {
        let words: Vec<u32> =
            bytes.chunks(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes)).collect();
        let [1, given, denied, entries @ ..] = &words[..] else { return Err(Fault::Invalid) };
        let entries: Vec<(PrincipalId, u32)> = entries
            .chunks_exact(2)
            .map(|pair| (PrincipalId(pair[0].cast_signed()), pair[1]))
            .collect();
        if entries.len() != (given + denied) as usize {
            return Err(Fault::Invalid);
        }
        let (given, denied) = entries.split_at(*given as usize);
        let table = |entries: &[(PrincipalId, u32)]| entries.iter().copied().collect();
        Ok(List { bytes: bytes.clone(), given: table(given), denied: table(denied) })
    }

    fn rights(&self, is: &BTreeSet<PrincipalId>) -> u32 {
        let union = |table: &BTreeMap<PrincipalId, u32>| {
            is.iter().filter_map(|number| table.get(number)).fold(0, |rights, more| rights | more)
        };
        union(&self.given) & !union(&self.denied)
    }
}

impl ModelTree {
    /// Sets the principals of a uid: the user and all its groups.
    pub fn set_numbers(&mut self, uid: u32, is: BTreeSet<PrincipalId>) {
        self.principals.insert(uid, is);
    }

    /// Whether lists decide: the root has one.
    pub(crate) fn decides(&self) -> bool {
        self.nodes.get(&self.root()).is_some_and(|root| root.list.is_some())
    }

    pub(crate) fn is_administrator(&self, caller: &Caller) -> bool {
        caller.is_root() || self.is(caller).contains(&PrincipalId::ADMINISTRATORS)
    }

    fn is(&self, caller: &Caller) -> BTreeSet<PrincipalId> {
        self.principals.get(&caller.uid).cloned().unwrap_or_default()
    }

    /// The directory that a file is in; the root, if that was removed.
    fn above(&self, fid: Fid) -> Fid {
        let parent = self.nodes[&fid].parent;
        if self.nodes.contains_key(&parent) { parent } else { self.root() }
    }

    /// The file or directory whose list decides.
    fn ruler(&self, fid: Fid) -> Fid {
        let mut at = fid;
        while self.nodes[&at].list.is_none() && at != self.root() {
            at = self.above(at);
        }
        at
    }

    /// The list that decides.
    pub(crate) fn ruling(&self, fid: Fid) -> Option<List> {
        self.nodes[&self.ruler(fid)].list.clone()
    }

    fn rights_in(&self, caller: &Caller, dir: Fid) -> u32 {
        if caller.is_root() {
            return ALL;
        }
        let given = self.ruling(dir).map_or(0, |list| list.rights(&self.is(caller)));
        let owns = self.nodes[&dir].status.uid == caller.uid;
        given | if owns || self.is_administrator(caller) { LOOKUP | ADMINISTER } else { 0 }
    }

    /// The rights of the caller, and the file or directory whose list gives them.
    fn rights(&self, caller: &Caller, fid: Fid) -> (u32, Fid) {
        let node = &self.nodes[&fid];
        if node.status.kind == Kind::Directory {
            return (self.rights_in(caller, fid), fid);
        }
        let dir = self.above(fid);
        let (in_dir, Some(list)) = (self.rights_in(caller, dir), &node.list) else {
            return (self.rights_in(caller, dir), dir);
        };
        if caller.is_root() {
            return (ALL, fid);
        }
        let owns = node.status.uid == caller.uid || self.is_administrator(caller);
        let own =
            list.rights(&self.is(caller)) & !OF_DIRECTORIES | if owns { ADMINISTER } else { 0 };
        (own | in_dir & LOOKUP, fid)
    }

    /// The table of `docs/spec/access.md`.
    pub(crate) fn listed(&self, caller: &Caller, fid: Fid, want: RequestedAccess) -> bool {
        let node = &self.nodes[&fid];
        let is_directory = node.status.kind == Kind::Directory;
        let (rights, _) = self.rights(caller, fid);
        let dropped = !is_directory && node.status.uid == caller.uid && rights & INSERT != 0;
        let needs = match want {
            RequestedAccess::See if is_directory => {
                let above = node.parent;
                let from_above =
                    self.nodes.contains_key(&above) && self.rights_in(caller, above) & LOOKUP != 0;
                return fid == self.root()
                    || rights & LOOKUP != 0
                    || from_above
                    || caller.is_root();
            }
            RequestedAccess::See | RequestedAccess::List | RequestedAccess::Search => LOOKUP,
            RequestedAccess::ReadXattr if is_directory => LOOKUP,
            RequestedAccess::ReadXattr | RequestedAccess::ReadData => READ,
            RequestedAccess::Insert => INSERT,
            RequestedAccess::Delete => DELETE,
            RequestedAccess::Move => 0,
            RequestedAccess::Write | RequestedAccess::WriteData if dropped => 0,
            RequestedAccess::Write | RequestedAccess::WriteData => WRITE,
            RequestedAccess::Administer => ADMINISTER,
        };
        rights & needs == needs
    }

    pub(crate) fn get_acl(&self, ask: ModelContext<'_>, fid: Fid) -> Result<Answer, Fault> {
        self.need_lists(fid)?;
        self.node(fid)?;
        self.need(ask, fid, RequestedAccess::Search)?;
        let list = self.ruling(fid).ok_or(Fault::Damaged)?;
        Ok(Answer::Acl { of: self.ruler(fid), list: list.bytes })
    }

    pub(crate) fn tell_rights(&self, ask: ModelContext<'_>, fid: Fid) -> Result<Answer, Fault> {
        self.need_lists(fid)?;
        self.node(fid)?;
        let (rights, of) = self.rights(ask.caller, fid);
        Ok(Answer::Rights { of, rights })
    }

    pub(crate) fn set_acl(
        &mut self,
        ask: ModelContext<'_>,
        fid: Fid,
        list: Option<&Bytes>,
    ) -> Result<Answer, Fault> {
        let list = list.map(List::read).transpose()?;
        if fid == self.root() && self.decides() != list.is_some() {
            if !self.is_administrator(ask.caller) {
                return Err(Fault::NotPermitted);
            }
        } else {
            self.need_lists(fid)?;
            if self.node(fid)?.status.kind.has_target() {
                return Err(Fault::Invalid);
            }
            self.need(ask, fid, RequestedAccess::Administer)?;
        }
        let node = self.node_mut(fid)?;
        node.list = list;
        node.touch_status(ask.wall);
        self.mark();
        Ok(Answer::Done)
    }

    fn need_lists(&self, fid: Fid) -> Result<(), Fault> {
        if fid.volume == self.root().volume && !self.decides() {
            Err(Fault::Unsupported)
        } else {
            Ok(())
        }
    }

    /// Sets in each status the directory or file whose list decides.
    fn mark(&mut self) {
        let decides = self.decides();
        for node in self.nodes.values_mut() {
            node.status.by_list = decides;
            node.status.own_list =
                decides && node.list.is_some() && node.status.kind != Kind::Directory;
        }
    }
}
