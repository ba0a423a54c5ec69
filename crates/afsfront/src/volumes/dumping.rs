//! Dumps of volumes, as `vos dump` of AFS writes them.
//!
//! Model: a dump is of one state. A volume that can be written is sealed first: the dump reads a
//! snapshot, which it removes at its end. It walks the tree from the root, so it has the numbers
//! of all vnodes before it writes the first, and writes directories and then all others in the
//! order of their numbers. The server reads: the caller has shown that it may have everything.

use std::collections::BTreeMap;

use afs3::dump::{DUMP_VERSION, DumpAttributes, DumpItem, VnodeAttributes, VolumeAttributes};
use afs3::rights::{AfsRights, STORED_ACL_BYTES, StoredAcl};
use bytes::Bytes;
use guard::Acl;
use types::limits::PAYLOAD_BYTES_MAX;
use types::{
    Answer, Call, Cookie, Fid, Kind, Name, Status, Timestamp, VolumeCall, VolumeId, VolumeInfo,
    VolumeKind, WhichVolume,
};

use super::reports::kind_of;
use super::{refusal_of, unexpected};
use crate::files::{foreign_target, list_pages, mode_of, owner};
use crate::{CallStream, Refusal, Services, foreign_fid};

/// Bytes that are sent at once.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of one listing.
const LISTED_BYTES: u32 = 128 << 10;
/// Kinds of vnodes.
pub(super) const FILE: u8 = 1;
pub(super) const DIRECTORY: u8 = 2;
pub(super) const SYMLINK: u8 = 3;
/// The words of the uses of a week.
const WEEK: usize = 7;

/// The parts of a volume that a dump has.
#[derive(Clone, Copy, Default)]
pub(super) struct DumpScope {
    /// Only vnodes that changed at that time or later have attributes; 0: all have.
    pub from: u32,
    /// Directories that did not change are without them, too.
    pub omits_directories: bool,
}

/// The receiver of a dump.
pub(super) enum DumpTarget<'a> {
    Stream(&'a mut dyn CallStream),
    /// Nothing is sent, and the bytes are counted.
    Count(u64),
}

/// The state that a dump reads, while it reads.
struct DumpedState<'a> {
    services: &'a dyn Services,
    volume: VolumeId,
    /// The snapshot that was made for it.
    snapshot: Option<VolumeId>,
}

/// A vnode that the walk has found.
struct WalkedVnode {
    fid: Fid,
    parent: u32,
}

impl Drop for DumpedState<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.snapshot {
            // One that stays is removed before the next dump of the volume.
            let _ = self.services.ask_as_server(Call::Volume(VolumeCall::Remove { id }));
        }
    }
}

/// The front of the names of a dump's snapshots.
fn snapshot_prefix(of: &VolumeInfo) -> Vec<u8> {
    [of.name.as_bytes(), b".snapshot.afs-dump-"].concat()
}

impl<'a> DumpedState<'a> {
    fn begin(services: &'a dyn Services, info: &VolumeInfo) -> Result<DumpedState<'a>, Refusal> {
        if info.kind != VolumeKind::ReadWrite {
            return Ok(DumpedState { services, volume: info.id, snapshot: None });
        }
        let prefix = snapshot_prefix(info);
        let volume = WhichVolume::Id(info.id);
        match services.ask_as_server(Call::Volume(VolumeCall::Examine { volume }))? {
            // A dump that a crash ended has left its snapshot.
            Answer::Volumes { volumes, .. } => {
                for left in volumes.iter().filter(|one| one.name.as_bytes().starts_with(&prefix)) {
                    services.ask_as_server(Call::Volume(VolumeCall::Remove { id: left.id }))?;
                }
            }
            _ => return Err(unexpected()),
        }
        let name = [&prefix[..], services.now().secs.to_string().as_bytes()].concat();
        let name = Name::new(&name[..]).map_err(|_| Refusal::NAME_TOO_LONG)?;
        let (kind, replace) = (VolumeKind::Snapshot, false);
        let clone = VolumeCall::Clone { id: None, of: info.id, name, kind, replace };
        // By the caller, so that the audit log has who dumped what.
        match services.ask(Call::Volume(clone)).map_err(refusal_of)? {
            Answer::Volumes { volumes, .. } => {
                let id = volumes.first().ok_or_else(unexpected)?.id;
                Ok(DumpedState { services, volume: id, snapshot: Some(id) })
            }
            _ => Err(unexpected()),
        }
    }

    fn status(&self, fid: Fid) -> Result<Status, Refusal> {
        match self.services.ask_as_server(Call::GetStatus { fid })? {
            Answer::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    }

    /// The directories and the others, by their numbers.
    fn walk(&self) -> Result<[BTreeMap<u32, WalkedVnode>; 2], Refusal> {
        let root = Fid::root(self.volume);
        let (mut directories, mut others) = (BTreeMap::new(), BTreeMap::new());
        directories.insert(foreign_fid(root)?.vnode, WalkedVnode { fid: root, parent: 0 });
        let mut unread = vec![root];
        while let Some(dir) = unread.pop() {
            let parent = foreign_fid(dir)?.vnode;
            let mut cookie = Cookie::START;
            loop {
                let (bytes_max, plus) = (LISTED_BYTES, false);
                let call = Call::ReadDir { dir, cookie, bytes_max, plus };
                let Answer::Entries { entries, end, .. } = self.services.ask_as_server(call)?
                else {
                    return Err(unexpected());
                };
                for entry in &entries {
                    let vnode = foreign_fid(entry.fid)?.vnode;
                    let found = WalkedVnode { fid: entry.fid, parent };
                    if entry.kind == Kind::Directory {
                        directories.insert(vnode, found);
                        unread.push(entry.fid);
                    } else {
                        // A file with several names is in the directory of the first.
                        others.entry(vnode).or_insert(found);
                    }
                    cookie = entry.cookie;
                }
                if end {
                    break;
                }
            }
        }
        Ok([directories, others])
    }

    fn list_of(&self, dir: Fid) -> Result<Box<[u8; STORED_ACL_BYTES]>, Refusal> {
        let Answer::Acl { list, .. } = self.services.ask_as_server(Call::GetAcl { fid: dir })?
        else {
            return Err(unexpected());
        };
        let list = Acl::decode(&list).map_err(|_| Refusal::MEDIUM)?;
        let stored = |entries: &[guard::AclEntry]| {
            entries.iter().map(|entry| (entry.who.0, AfsRights(entry.rights.0))).collect()
        };
        let stored =
            StoredAcl { positive: stored(list.positive()), negative: stored(list.negative()) };
        stored.to_bytes().map(Box::new).map_err(|_| Refusal::TOO_BIG)
    }
}

/// A dump that is being written.
pub(super) struct VolumeDump<'a, 'b> {
    state: DumpedState<'a>,
    scope: DumpScope,
    target: DumpTarget<'b>,
    /// Bytes that are not sent yet.
    encoded: Vec<u8>,
}

impl<'b> VolumeDump<'_, 'b> {
    /// Writes the dump of a volume.
    ///
    /// # Errors
    /// The services'; EFBIG: AFS has no form for something in it; the stream's.
    pub fn write(
        services: &dyn Services,
        info: &VolumeInfo,
        scope: DumpScope,
        target: DumpTarget<'b>,
    ) -> Result<DumpTarget<'b>, Refusal> {
        let state = DumpedState::begin(services, info)?;
        if !state.status(Fid::root(state.volume))?.by_list {
            // AF-1: where mode bits decide, directories have no lists to dump.
            return Err(Refusal::NO_SERVICE);
        }
        let mut dump = VolumeDump { state, scope, target, encoded: Vec::new() };
        let [directories, others] = dump.state.walk()?;
        let uniques = directories.values().chain(others.values());
        let uniques = uniques.filter_map(|found| Some(foreign_fid(found.fid).ok()?.unique));
        // OpenAFS takes a volume that has a higher one than this for damaged.
        dump.headers(info, uniques.max().unwrap_or(1).saturating_add(1))?;
        for (vnode, found) in directories.iter().chain(&others) {
            dump.vnode(*vnode, found)?;
        }
        dump.item(&DumpItem::End)?;
        dump.flush()?;
        Ok(dump.target)
    }

    fn item(&mut self, item: &DumpItem<'_>) -> Result<(), Refusal> {
        item.encode(&mut self.encoded);
        if self.encoded.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        let bytes = Bytes::from(std::mem::take(&mut self.encoded));
        match &mut self.target {
            DumpTarget::Stream(stream) if !bytes.is_empty() => stream.give(bytes)?,
            DumpTarget::Stream(_) => {}
            DumpTarget::Count(count) => *count += bytes.len() as u64,
        }
        Ok(())
    }

    fn headers(&mut self, info: &VolumeInfo, next_unique: u32) -> Result<(), Refusal> {
        let secs = |at: Timestamp| u32::try_from(at.secs).unwrap_or(0);
        let is_written = info.kind == VolumeKind::ReadWrite;
        let created = secs(info.created);
        let until = if is_written { secs(self.state.services.now()) } else { created };
        let volume = u32::try_from(info.id.0).map_err(|_| Refusal::TOO_BIG)?;
        let name = info.name.as_bytes().to_vec();
        let times = vec![(self.scope.from, until)];
        let header = DumpAttributes { volume, name: name.clone(), times };
        self.item(&DumpItem::Header { version: DUMP_VERSION, tags: header.to_tags() })?;
        let kib = |bytes: u64| u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let attributes = VolumeAttributes {
            volume,
            stamp_version: 1,
            name,
            in_service: 1,
            blessed: 1,
            next_unique,
            kind: kind_of(info.kind) as u8,
            parent: u32::try_from(info.tree.0).map_err(|_| Refusal::TOO_BIG)?,
            max_quota: kib(info.quota_bytes),
            disk_used: kib(info.used_bytes),
            files: u32::try_from(info.used_files).unwrap_or(u32::MAX),
            created,
            accessed: secs(info.updated),
            updated: secs(info.updated),
            week_use: vec![0; WEEK],
            ..VolumeAttributes::default()
        };
        self.item(&DumpItem::VolumeHeader { tags: attributes.to_tags() })
    }

    fn vnode(&mut self, vnode: u32, found: &WalkedVnode) -> Result<(), Refusal> {
        let status = self.state.status(found.fid)?;
        let unique = foreign_fid(found.fid)?.unique;
        let changed = u32::try_from(status.changed.secs).unwrap_or(0);
        let is_directory = status.kind == Kind::Directory;
        let is_whole = changed >= self.scope.from || is_directory && !self.scope.omits_directories;
        if !is_whole {
            return self.item(&DumpItem::Vnode { vnode, unique, tags: Vec::new() });
        }
        let attributes = VnodeAttributes {
            kind: match status.kind {
                Kind::Directory => DIRECTORY,
                Kind::Symlink | Kind::MountPoint => SYMLINK,
                _ => FILE,
            },
            link_count: u16::try_from(status.links).unwrap_or(u16::MAX),
            data_version: status.data_version.0 as u32,
            client_mod_time: u32::try_from(status.modified.secs).unwrap_or(0),
            author: owner(status.uid),
            owner: owner(status.uid),
            mode: mode_of(&status) as u16,
            parent: found.parent,
            server_mod_time: changed,
            group: Some(owner(status.gid)).filter(|group| *group != 0),
            acl: is_directory.then(|| self.state.list_of(found.fid)).transpose()?,
        };
        self.item(&DumpItem::Vnode { vnode, unique, tags: attributes.to_tags() })?;
        self.contents(&status)
    }

    fn contents(&mut self, status: &Status) -> Result<(), Refusal> {
        let services = self.state.services;
        let whole = match status.kind {
            Kind::File => return self.file(status),
            Kind::Directory => list_pages(services, status.fid, status.data_version)?
                // A sealed directory does not change.
                .ok_or_else(unexpected)?,
            Kind::Symlink | Kind::MountPoint => {
                match services.ask_as_server(Call::ReadLink { fid: status.fid })? {
                    Answer::Target(target) => foreign_target(status.kind, &target).into(),
                    _ => return Err(unexpected()),
                }
            }
            _ => return Ok(()),
        };
        self.item(&DumpItem::Contents { bytes: whole.len() as u64, wide: false })?;
        self.item(&DumpItem::Piece(&whole))
    }

    fn file(&mut self, status: &Status) -> Result<(), Refusal> {
        let size = status.size;
        self.item(&DumpItem::Contents { bytes: size, wide: u32::try_from(size).is_err() })?;
        if let DumpTarget::Count(count) = &mut self.target {
            *count += size;
            return Ok(());
        }
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(PAYLOAD_BYTES_MAX as u64) as u32;
            let call = Call::Read { fid: status.fid, offset, length };
            let Answer::Data { data, .. } = self.state.services.ask_as_server(call)? else {
                return Err(unexpected());
            };
            if data.is_empty() {
                return Err(Refusal::MEDIUM);
            }
            offset += data.len() as u64;
            self.item(&DumpItem::Piece(&data))?;
        }
        Ok(())
    }
}
