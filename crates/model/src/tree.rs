//! The tree, and the function of each call.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{
    Answer, BootVerifier, Call, Caller, Fault, Fid, Kind, Name, PrincipalId, SessionId, Status,
    Timestamp, VnodeNo, VolumeId, VolumeStatus,
};

use crate::ModelBody;
use crate::access::RequestedAccess;
use crate::lists::List;

/// Content of a file, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes.
    File(ModelBody),
    /// Entries.
    Directory(BTreeMap<Name, Fid>),
    /// Target of a symbolic link.
    Target(Bytes),
    /// Pipes, sockets, devices.
    Nothing,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNode {
    /// Its status; `used` is always 0 here.
    pub status: Status,
    /// Content of the same kind as the status.
    pub content: Content,
    /// Parent of a directory; of a file, the directory of its first name, or of its last move. The
    /// root is its own parent.
    pub parent: Fid,
    /// Verifier of the exclusive creation that made it.
    pub exclusive: Option<u64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// Its own access list; none: the list above decides.
    pub list: Option<List>,
}

/// Mode, owner and group.
pub(crate) type ModelRights = (u16, u32, u32);

/// A volume's files.
#[derive(Clone, Debug)]
pub struct ModelTree {
    pub(crate) nodes: BTreeMap<Fid, ModelNode>,
    pub(crate) holds: BTreeMap<Fid, BTreeSet<SessionId>>,
    /// Mode, owner and group that a file had while a session has had it open.
    pub(crate) opened: BTreeMap<(SessionId, Fid), Vec<ModelRights>>,
    /// Principals of each uid.
    pub(crate) principals: BTreeMap<u32, BTreeSet<PrincipalId>>,
    name: Name,
    volume: VolumeId,
    next: u64,
    /// Fid of the next new file, if a test sets it.
    given: Option<Fid>,
}

/// Session, caller and time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelContext<'a> {
    pub session: SessionId,
    pub wall: Timestamp,
    pub caller: &'a Caller,
}

impl ModelTree {
    /// Creates a volume with nothing but its root directory, `root`.
    pub fn new(name: Name, root: Status) -> Self {
        let node = ModelNode {
            status: Status { used: 0, ..root },
            content: Content::Directory(BTreeMap::new()),
            parent: root.fid,
            exclusive: None,
            xattrs: BTreeMap::new(),
            list: None,
        };
        let nodes = BTreeMap::from([(root.fid, node)]);
        ModelTree {
            nodes,
            holds: BTreeMap::new(),
            opened: BTreeMap::new(),
            principals: BTreeMap::new(),
            name,
            volume: root.fid.volume,
            next: 1,
            given: None,
        }
    }

    /// The root directory.
    pub fn root(&self) -> Fid {
        Fid::root(self.volume)
    }

    /// Sets whether the volume records reads.
    pub fn set_read_times(&mut self, on: bool) {
        self.nodes.values_mut().for_each(|node| node.status.read_times = on);
    }

    /// Every file by its fid.
    pub fn nodes(&self) -> &BTreeMap<Fid, ModelNode> {
        &self.nodes
    }

    /// Executes `call` for `caller`, whose groups must all be given (none given: there are none).
    /// Locks, checksums, descriptors, changes of single list entries, and reports are not part of
    /// the model: `Unsupported`.
    ///
    /// # Errors
    /// The fault that the service must answer.
    pub fn apply(
        &mut self,
        session: SessionId,
        wall: Timestamp,
        caller: &Caller,
        call: &Call,
    ) -> Result<Answer, Fault> {
        let answer = self.answer(ModelContext { session, wall, caller }, call);
        if cfg!(debug_assertions) {
            self.assert_whole();
        }
        answer
    }

    /// The file of a number, if it has a name.
    fn named(&self, vnode: VnodeNo) -> Result<&ModelNode, Fault> {
        let mut nodes = self.nodes.values();
        let found = nodes.find(|node| node.status.fid.vnode == vnode && node.status.links > 0);
        found.ok_or(Fault::Stale)
    }

    fn answer(&mut self, ask: ModelContext<'_>, call: &Call) -> Result<Answer, Fault> {
        match call {
            Call::Root { volume } if *volume == self.name => {
                Ok(Answer::Status(self.node(self.root())?.status))
            }
            Call::Root { .. } => Err(Fault::NoVolume),
            Call::Lookup { dir, name } => self.lookup(ask, *dir, name),
            Call::ReadDir { dir, cookie, plus, .. } => self.read_dir(ask, *dir, *cookie, *plus),
            Call::Make { dir, name, kind, mode, how } => {
                self.make(ask, *dir, name, kind, *mode, *how)
            }
            Call::MakeUnnamed { dir, mode } => self.make_unnamed(ask, *dir, *mode),
            Call::Link { fid, dir, name } => self.link(ask, *fid, *dir, name),
            Call::Remove { dir, name, what, hold } => self.remove(ask, *dir, name, *what, *hold),
            Call::Rename { from_dir, from, to_dir, to, mode, hold } => {
                self.rename(ask, (*from_dir, from), (*to_dir, to), *mode, *hold)
            }
            Call::ReadLink { fid } => self.read_link(ask, *fid),
            Call::GetStatus { fid } => {
                self.need(ask, *fid, RequestedAccess::See)?;
                Ok(Answer::Status(self.node(*fid)?.status))
            }
            Call::ByVnode { .. } if !self.is_administrator(ask.caller) => Err(Fault::NotPermitted),
            Call::ByVnode { fid, parent } => {
                let mut found = self.named(fid.vnode)?;
                if *parent && found.status.kind != Kind::Directory {
                    return Err(Fault::NotDirectory);
                }
                if *parent {
                    found = self.named(found.parent.vnode)?;
                }
                Ok(Answer::Status(found.status))
            }
            Call::GetAcl { fid } => self.get_acl(ask, *fid),
            Call::SetAcl { fid, list, instead_of: None } => self.set_acl(ask, *fid, list.as_ref()),
            Call::Rights { fid } => self.tell_rights(ask, *fid),
            Call::SetStatus { fid, change } => self.set_status(ask, *fid, change),
            Call::NoteRead { fid, was, at } => self.note_read(ask, *fid, *was, *at),
            Call::XattrGet { fid, name } => self.xattr_get(ask, *fid, name),
            Call::XattrSet { fid, name, value, mode } => {
                self.xattr_set(ask, *fid, name, value, *mode)
            }
            Call::XattrList { fid } => self.xattr_list(ask, *fid),
            Call::XattrRemove { fid, name } => self.xattr_remove(ask, *fid, name),
            Call::VolumeStatus { fid } => self.volume_status(*fid),
            Call::Read { fid, offset, length } | Call::ReadPacked { fid, offset, length } => {
                self.read(ask, *fid, *offset, *length)
            }
            Call::Write { fid, offset, data, kill_privileges, .. } => {
                self.write(ask, *fid, *offset, data, *kill_privileges)
            }
            Call::Allocate { fid, offset, length, mode } => {
                self.allocate(ask, *fid, *offset, *length, *mode)
            }
            Call::Seek { fid, offset, what } => self.seek(ask, *fid, *offset, *what),
            Call::Commit { fid } | Call::CommitVolume { fid } => {
                self.node(*fid).map(|_| Answer::Committed { verifier: BootVerifier::default() })
            }
            Call::Hold { fids } => self.hold(ask, fids),
            Call::Unhold { fids } => self.unhold(ask, fids),
            Call::ReclaimDone => Ok(Answer::Done),
            // A delegated change is the change, at its own time.
            Call::Delegated { at, call, .. } => {
                self.answer(ModelContext { wall: *at, ..ask }, call)
            }
            Call::SetQuota { .. }
            | Call::SetAcl { .. }
            | Call::OpenBody { .. }
            | Call::LendBody { .. }
            | Call::SettleBody { .. }
            | Call::LendBlank { .. }
            | Call::AdoptBody { .. }
            | Call::ReadSums { .. }
            | Call::Lock { .. }
            | Call::Unlock { .. }
            | Call::TestLock { .. }
            | Call::Open { .. }
            | Call::Close { .. }
            | Call::Downgrade { .. }
            | Call::PersistLock { .. }
            | Call::FinishLock { .. }
            | Call::Delegate { .. }
            | Call::Return { .. }
            | Call::ServerReport
            | Call::Scrub { .. }
            | Call::Volume(_)
            | Call::Cell(_)
            | Call::Pts { .. }
            | Call::Auth { .. }
            | Call::Guard { .. } => Err(Fault::Unsupported),
        }
    }

    /// The model's own rules: a fault of the model must not pass for one of the service.
    fn assert_whole(&self) {
        let mut names: BTreeMap<Fid, u32> = BTreeMap::new();
        for (fid, node) in &self.nodes {
            let status = &node.status;
            assert_eq!(*fid, status.fid, "a file is stored under its fid");
            assert!(
                status.status_version.0 >= status.data_version.0,
                "{fid}: data changes the status"
            );
            let Content::Directory(entries) = &node.content else { continue };
            let mut subdirectories = 0;
            for (name, child) in entries {
                let there = self.nodes.get(child);
                let there = there.unwrap_or_else(|| panic!("{fid}/{name:?} names no file"));
                *names.entry(*child).or_default() += 1;
                if there.status.kind == Kind::Directory {
                    subdirectories += 1;
                    assert_eq!(there.parent, *fid, "{child}: a directory knows the one above");
                }
            }
            assert!(status.links != 0 || entries.is_empty(), "{fid}: a removed one is empty");
            if status.links != 0 {
                assert_eq!(status.links, 2 + subdirectories, "{fid}: links of a directory");
            }
        }
        for (fid, node) in self.nodes.iter().filter(|(fid, _)| **fid != self.root()) {
            let named = names.get(fid).copied().unwrap_or(0);
            let links = node.status.links;
            if node.status.kind == Kind::Directory {
                assert_eq!(named, u32::from(links != 0), "{fid}: a directory has one name");
            } else {
                assert_eq!(named, links, "{fid}: names of a file");
            }
            let held = self.holds.get(fid).is_some_and(|sessions| !sessions.is_empty());
            assert!(named > 0 || held, "HO-1: {fid} has neither names nor holders");
        }
    }

    pub(crate) fn node(&self, fid: Fid) -> Result<&ModelNode, Fault> {
        if fid.volume != self.volume {
            return Err(Fault::NoVolume);
        }
        self.nodes.get(&fid).ok_or(Fault::Stale)
    }

    pub(crate) fn node_mut(&mut self, fid: Fid) -> Result<&mut ModelNode, Fault> {
        self.node(fid)?;
        self.nodes.get_mut(&fid).ok_or(Fault::Stale)
    }

    /// A directory that the caller may search.
    pub(crate) fn searched(&self, ask: ModelContext<'_>, dir: Fid) -> Result<&ModelNode, Fault> {
        self.directory(dir)?;
        self.need(ask, dir, RequestedAccess::Search)?;
        self.directory(dir)
    }

    pub(crate) fn directory(&self, dir: Fid) -> Result<&ModelNode, Fault> {
        let node = self.node(dir)?;
        if node.status.kind == Kind::Directory { Ok(node) } else { Err(Fault::NotDirectory) }
    }

    /// Sets the fid of the next new file, which must be unused: for tests that compare fids too.
    pub fn give(&mut self, fid: Fid) {
        self.given = Some(fid);
    }

    /// Returns the same files as another volume.
    #[must_use]
    pub fn as_volume(&self, name: Name, volume: VolumeId) -> Self {
        let there = |fid: Fid| Fid { volume, ..fid };
        let node = |node: &ModelNode| {
            let mut node = ModelNode { parent: there(node.parent), ..node.clone() };
            node.status.fid = there(node.status.fid);
            if let Content::Directory(entries) = &mut node.content {
                entries.values_mut().for_each(|fid| *fid = there(*fid));
            }
            node
        };
        let nodes = self.nodes.iter().map(|(fid, of)| (there(*fid), node(of))).collect();
        let (principals, next) = (self.principals.clone(), self.next);
        ModelTree {
            nodes,
            holds: BTreeMap::new(),
            opened: BTreeMap::new(),
            principals,
            name,
            volume,
            next,
            given: None,
        }
    }

    /// Raises the versions of all files by `by`.
    pub fn shift_versions(&mut self, by: u64) {
        for node in self.nodes.values_mut() {
            node.status.data_version.0 += by;
            node.status.status_version.0 += by;
        }
    }

    /// Returns a fid that was never used.
    pub(crate) fn new_fid(&mut self, kind: Kind) -> Fid {
        if let Some(fid) = self.given.take() {
            assert!(!self.nodes.contains_key(&fid), "{fid} is given twice");
            return fid;
        }
        self.next += 1;
        let odd = u64::from(kind == Kind::Directory);
        Fid {
            volume: self.volume,
            vnode: VnodeNo(self.next * 2 + odd),
            unique: types::Uniquifier(self.next),
        }
    }

    /// Drops a file that has neither names nor holders.
    pub(crate) fn drop_if_gone(&mut self, fid: Fid) {
        let held = self.holds.get(&fid).is_some_and(|sessions| !sessions.is_empty());
        if !held && self.nodes.get(&fid).is_some_and(|node| node.status.links == 0) {
            self.nodes.remove(&fid);
        }
    }

    fn hold(&mut self, ask: ModelContext<'_>, fids: &[Fid]) -> Result<Answer, Fault> {
        for fid in fids.iter().filter(|fid| self.nodes.contains_key(fid)) {
            self.holds.entry(*fid).or_default().insert(ask.session);
        }
        Ok(Answer::Done)
    }

    fn unhold(&mut self, ask: ModelContext<'_>, fids: &[Fid]) -> Result<Answer, Fault> {
        fids.iter().for_each(|fid| self.release(ask.session, *fid));
        Ok(Answer::Done)
    }

    /// Discards the rights of open files, as a restart of the server does.
    pub fn restart(&mut self) {
        self.opened.clear();
    }

    fn release(&mut self, session: SessionId, fid: Fid) {
        self.opened.remove(&(session, fid));
        if let Some(sessions) = self.holds.get_mut(&fid) {
            sessions.remove(&session);
        }
        self.drop_if_gone(fid);
    }

    fn volume_status(&self, fid: Fid) -> Result<Answer, Fault> {
        if fid.volume != self.volume {
            return Err(Fault::NoVolume);
        }
        Ok(Answer::Volume(VolumeStatus {
            used_files: self.nodes.len() as u64,
            ..VolumeStatus::default()
        }))
    }
}

impl ModelNode {
    pub(crate) fn entries(&self) -> Result<&BTreeMap<Name, Fid>, Fault> {
        match &self.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(Fault::NotDirectory),
        }
    }

    /// Records a change of status.
    pub(crate) fn touch_status(&mut self, wall: Timestamp) {
        self.status.changed = wall;
        self.status.status_version.0 += 1;
    }

    /// Records a change of data or entries.
    pub(crate) fn touch_data(&mut self, wall: Timestamp) {
        self.touch_status(wall);
        self.status.modified = wall;
        self.status.data_version.0 += 1;
    }
}
