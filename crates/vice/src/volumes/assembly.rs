//! The contents of a volume that come from elsewhere, vnode by vnode, with their numbers.
//!
//! Model. The volume is offline, so this is the only writer. Vnodes come in any order; the entries
//! of directories, which name them, are kept in memory until all are there. Then vnodes that did
//! not come are removed, and one walk from the root settles what the source may have told wrongly:
//! an entry is stored if its vnode is there, a directory is named once, links are as many as
//! entries, and what no entry names is removed. So whatever comes in, the volume is sound. It is
//! not atomic: after an error or a crash the volume is offline with a part of its contents.
//!
//! A file that was here before gets a later version of its contents than it had, even if it comes
//! with the same one: clients that know it must read it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::size_of;
use std::sync::Arc;

use store::{EntryTarget, Update, Vnode, VolumeFields, vnode_numbers};
use types::{
    Assembly, AssemblyReport, ComingEntry, ComingVnode, Cookie, DataVersion, Fault, Fid, Kind,
    Name, StatusVersion, Timestamp, Uniquifier, VnodeNo, VolumeId,
};

use super::refill::refilled;
use super::{ATTRIBUTE, ViceVolume, Volumes};

/// Entries of a directory that one commit changes.
const ENTRIES_AT_ONCE: usize = 128;
/// Numbers of vnodes that one search returns.
const NUMBERS_AT_ONCE: usize = 1024;
/// The most memory for entries that wait for the vnodes that they name.
const ENTRIES_BYTES_MAX: usize = 1 << 30;

/// See the head of the file.
pub struct VolumeAssembly {
    volume: Arc<ViceVolume>,
    /// Vnodes that came in, or stay.
    named: HashSet<VnodeNo>,
    entries: BTreeMap<VnodeNo, Vec<ComingEntry>>,
    entries_bytes: usize,
    /// Numbers below are not allocated.
    taken_below: VnodeNo,
}

/// The walk at the end.
#[derive(Default)]
struct Walk {
    directories: HashSet<VnodeNo>,
    /// Names of each file.
    names: HashMap<VnodeNo, u32>,
    bad_entries: u64,
}

impl VolumeAssembly {
    /// Begins with the volume as it is; of a read-only one, with the head for its next state
    /// (`refill.rs`).
    ///
    /// # Errors
    /// `ReadOnly`; `Busy`: the volume is in service; those of `refill.rs`.
    pub(crate) fn begin(volumes: &Volumes, id: VolumeId) -> Result<VolumeAssembly, Fault> {
        let volume = volumes.any_volume(id)?;
        let volume = if volume.store.is_writable() { volume } else { refilled(volumes, &volume)? };
        volume.need_writable()?;
        let assembly = VolumeAssembly {
            volume,
            named: HashSet::from([VnodeNo::ROOT]),
            entries: BTreeMap::new(),
            entries_bytes: 0,
            taken_below: VnodeNo(0),
        };
        assembly.need_offline()?;
        Ok(assembly)
    }

    fn need_offline(&self) -> Result<(), Fault> {
        if self.volume.store.is_offline() { Ok(()) } else { Err(Fault::Busy) }
    }

    fn fid(&self, coming: &ComingVnode) -> Result<Fid, Fault> {
        let volume = self.volume.store.id();
        let fid = Fid { volume, vnode: coming.vnode, unique: coming.unique };
        let is_root = fid.vnode == VnodeNo::ROOT;
        let is_directory = coming.kind == Kind::Directory;
        let is_possible = fid.vnode.0 > 0
            && fid.vnode.is_directory() == is_directory
            && is_root == (fid == Fid::root(volume));
        is_possible.then_some(fid).ok_or(Fault::Invalid)
    }

    fn each_vnode(&self, act: &mut dyn FnMut(Vnode) -> Result<(), Fault>) -> Result<(), Fault> {
        let (store, mut from) = (&self.volume.store, VnodeNo(0));
        loop {
            let numbers = vnode_numbers(store, from, NUMBERS_AT_ONCE)?;
            let Some(last) = numbers.last() else { return Ok(()) };
            from = VnodeNo(last.0 + 1);
            for no in numbers {
                if let Some(vnode) = store.vnode(no)? {
                    act(vnode)?;
                }
            }
        }
    }

    /// Removes a vnode with all that it has.
    fn remove(&self, vnode: &Vnode) -> Result<(), Fault> {
        let store = &self.volume.store;
        let mut vnode = vnode.clone();
        if vnode.status.kind == Kind::Directory {
            let names = self.stored_entries(vnode.no())?.into_keys().map(|name| (name, None));
            self.change_entries(&mut vnode, &names.collect::<Vec<_>>())?;
        }
        let mut update = Update::new();
        store.drop_vnode(&vnode, &mut update)?;
        if vnode.status.links == 0 {
            update.remove_orphan(vnode.no());
        }
        Ok(store.commit(update)?)
    }

    fn stored_entries(&self, dir: VnodeNo) -> Result<BTreeMap<Name, EntryTarget>, Fault> {
        let (mut all, mut cookie) = (BTreeMap::new(), Cookie::START);
        loop {
            let (entries, end) = self.volume.store.read_dir(dir, cookie, NUMBERS_AT_ONCE)?;
            cookie = entries.last().map_or(cookie, |last| last.cookie);
            all.extend(entries.into_iter().map(|one| (one.name, one.target)));
            if end {
                return Ok(all);
            }
        }
    }

    /// Puts entries, or removes those without a target.
    fn change_entries(
        &self,
        dir: &mut Vnode,
        changes: &[(Name, Option<EntryTarget>)],
    ) -> Result<(), Fault> {
        let store = &self.volume.store;
        for changes in changes.chunks(ENTRIES_AT_ONCE) {
            let mut update = Update::new();
            for (name, target) in changes {
                let mut edit = store.edit(dir, &mut update);
                match target {
                    Some(target) => edit.put_entry(name, *target)?,
                    None => drop(edit.remove_entry(name.as_bytes())?),
                }
            }
            update.put_vnode(dir);
            store.commit(update)?;
        }
        Ok(())
    }

    /// Stores the entries of a directory whose vnodes are there, and its links. Returns the
    /// directories in it. `coming`: its entries, if others came in.
    fn settle_directory(
        &self,
        no: VnodeNo,
        parent: VnodeNo,
        coming: Option<Vec<ComingEntry>>,
        walk: &mut Walk,
    ) -> Result<Vec<(VnodeNo, VnodeNo)>, Fault> {
        let store = &self.volume.store;
        let mut dir = store.vnode(no)?.ok_or(Fault::Damaged)?;
        let mut stored = self.stored_entries(no)?;
        let wanted: Vec<ComingEntry> = coming.unwrap_or_else(|| {
            let again = |(name, target): (&Name, &EntryTarget)| ComingEntry {
                name: name.clone(),
                vnode: target.vnode,
                unique: target.unique,
            };
            stored.iter().map(again).collect()
        });
        let (mut inside, mut changes) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for ComingEntry { name, vnode, unique } in wanted {
            let target = store.vnode(vnode)?.filter(|target| target.status.fid.unique == unique);
            let is_good = target.is_some() && !seen.contains(&name);
            let Some(target) = target.filter(|_| is_good) else {
                walk.bad_entries += 1;
                continue;
            };
            if target.status.kind == Kind::Directory {
                if !walk.directories.insert(vnode) {
                    walk.bad_entries += 1;
                    continue;
                }
                inside.push((vnode, no));
            } else {
                *walk.names.entry(vnode).or_default() += 1;
            }
            seen.insert(name.clone());
            let target = target.target();
            if stored.remove(&name) != Some(target) {
                changes.push((name, Some(target)));
            }
        }
        changes.extend(stored.into_keys().map(|name| (name, None)));
        self.change_entries(&mut dir, &changes)?;
        let links = 2 + u32::try_from(inside.len()).unwrap_or(u32::MAX - 2);
        if (dir.status.links, dir.parent) != (links, parent) {
            (dir.status.links, dir.parent) = (links, parent);
            let mut update = Update::new();
            update.put_vnode(&dir);
            store.commit(update)?;
        }
        Ok(inside)
    }
}

impl Assembly for VolumeAssembly {
    fn stays(&mut self, vnode: VnodeNo, unique: Uniquifier) -> Result<(), Fault> {
        let here = self.volume.store.vnode(vnode)?;
        if here.is_none_or(|here| here.status.fid.unique != unique) {
            return Err(Fault::Invalid);
        }
        self.named.insert(vnode);
        Ok(())
    }

    fn put(&mut self, coming: &ComingVnode) -> Result<(), Fault> {
        self.need_offline()?;
        let (fid, store) = (self.fid(coming)?, &self.volume.store);
        if fid.vnode >= self.taken_below {
            self.taken_below = store.slots()?.take_numbers(fid.vnode)?;
        }
        let here = store.vnode(fid.vnode)?;
        let same = here
            .as_ref()
            .is_some_and(|vnode| (vnode.status.fid, vnode.status.kind) == (fid, coming.kind));
        if let Some(other) = here.as_ref().filter(|_| !same) {
            self.remove(other)?;
        }
        let mut update = Update::new();
        let mut vnode = match &here {
            Some(vnode) if same => vnode.clone(),
            _ => {
                let (mode, (uid, gid)) = (coming.mode, coming.owner);
                let root = VnodeNo::ROOT;
                let mut new = Vnode::new(fid, coming.kind, mode, uid, gid, root, coming.changed);
                // The names of its body files must be new.
                new.generations = here.as_ref().map_or(0, |here| here.generations);
                update.create_vnode(&new);
                new
            }
        };
        if vnode.status.size > 0 && coming.kind != Kind::Directory {
            store.body(&mut vnode, &mut update)?.truncate(0)?;
        }
        let before =
            here.map_or((0, 0), |here| (here.status.data_version.0, here.status.status_version.0));
        let status = &mut vnode.status;
        status.mode = if coming.kind.has_target() { 0o777 } else { coming.mode & 0o7777 };
        (status.uid, status.gid) = coming.owner;
        (status.modified, status.accessed) = (coming.modified, coming.modified);
        (status.changed, status.created) = (coming.changed, coming.modified);
        status.data_version = DataVersion(coming.data_version.max(before.0 + 1));
        status.status_version = StatusVersion(status.status_version.0.max(before.1 + 1));
        if status.links == 0 {
            // It had no name before, and comes with one.
            status.links = 1;
            update.remove_orphan(fid.vnode);
        }
        if let Some(list) = &coming.list {
            store.edit(&mut vnode, &mut update).put_xattr(ATTRIBUTE, list)?;
        }
        update.put_vnode(&vnode);
        store.commit(update)?;
        self.named.insert(fid.vnode);
        Ok(())
    }

    fn write(&mut self, vnode: VnodeNo, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.need_offline()?;
        let store = &self.volume.store;
        let mut vnode = store.vnode(vnode)?.ok_or(Fault::Stale)?;
        let mut update = Update::new();
        let is_hole = vnode.status.kind == Kind::File && data.iter().all(|byte| *byte == 0);
        if is_hole {
            store.body(&mut vnode, &mut update)?.truncate(offset + data.len() as u64)?;
        } else {
            store.body(&mut vnode, &mut update)?.write(offset, data)?;
        }
        update.put_vnode(&vnode);
        Ok(store.commit(update)?)
    }

    fn set_entries(&mut self, dir: VnodeNo, entries: Vec<ComingEntry>) -> Result<(), Fault> {
        let bytes = |one: &ComingEntry| size_of::<ComingEntry>() + one.name.as_bytes().len();
        self.entries_bytes += entries.iter().map(bytes).sum::<usize>();
        if self.entries_bytes > ENTRIES_BYTES_MAX {
            return Err(Fault::NoSpace);
        }
        self.entries.insert(dir, entries);
        Ok(())
    }

    fn finish(mut self: Box<Self>, updated: Timestamp) -> Result<AssemblyReport, Fault> {
        self.need_offline()?;
        let named = std::mem::take(&mut self.named);
        self.each_vnode(&mut |vnode| {
            if named.contains(&vnode.no()) { Ok(()) } else { self.remove(&vnode) }
        })?;
        let mut walk = Walk::default();
        let mut unread = vec![(VnodeNo::ROOT, VnodeNo::ROOT)];
        walk.directories.insert(VnodeNo::ROOT);
        while let Some((dir, parent)) = unread.pop() {
            let coming = self.entries.remove(&dir);
            unread.extend(self.settle_directory(dir, parent, coming, &mut walk)?);
        }
        let mut report =
            AssemblyReport { bad_entries: walk.bad_entries, ..AssemblyReport::default() };
        self.each_vnode(&mut |mut vnode| {
            report.vnodes += 1;
            if walk.directories.contains(&vnode.no()) {
                return Ok(());
            }
            match walk.names.get(&vnode.no()) {
                Some(links) if vnode.status.links == *links => Ok(()),
                Some(links) => {
                    vnode.status.links = *links;
                    let mut update = Update::new();
                    update.put_vnode(&vnode);
                    Ok(self.volume.store.commit(update)?)
                }
                None => {
                    report.vnodes -= 1;
                    report.unnamed += 1;
                    self.remove(&vnode)
                }
            }
        })?;
        self.volume.contents_replaced()?;
        let (volumes, id) = (self.volume.partition.volumes(), self.volume.store.id());
        volumes.set_fields(id, VolumeFields::default(), updated)?;
        self.volume.partition.sync_all()?;
        let AssemblyReport { vnodes, bad_entries, unnamed } = report;
        let volume = self.volume.store.id().0;
        tracing::info!(volume, vnodes, "a volume was put together");
        if bad_entries > 0 || unnamed > 0 {
            tracing::warn!(
                volume,
                bad_entries,
                unnamed,
                "entries that name nothing, or a directory twice, and vnodes that no entry names, \
                 were left out"
            );
        }
        Ok(report)
    }
}
