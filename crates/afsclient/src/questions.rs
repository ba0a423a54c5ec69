//! Questions: names, listings, status, rights, links' targets, volumes.

use std::sync::Arc;

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsFids, FIDS_MAX, FetchVolumeStatus};
use bytes::Bytes;
use client::CallError;
use types::limits::TARGET_BYTES_MAX;
use types::{
    Answer, Cookie, DirEntry, Fault, Fid, Kind, Name, PartitionNo, Revised, Revision, Timestamp,
    VolumeId, VolumeInfo, VolumeState, VolumeStatus, WhichVolume,
};

use crate::context::{AfsCall, Answered, Told};
use crate::databases::Located;
use crate::directories::{DIRECTORY_BYTES_MAX, DirectoryPages, NamedFile};
use crate::promises::AskedAt;
use crate::servers::Trouble;
use crate::statuses::{foreign, kind, local, parent, version};

/// Entries of one answer: each of them may take a fifth of a call.
const ENTRIES_MAX: usize = 250;
/// Bytes of an entry besides its name.
const ENTRY_BYTES: usize = 192;
/// Bytes in a unit of AFS's quotas and sizes.
const KIB: u64 = 1024;
/// The rights that have a letter.
const RIGHTS: u32 = 0xff00_007f;

impl AfsCall<'_> {
    /// The pages of a directory, and when they were asked for.
    fn pages(&self, dir: Fid) -> Result<(Arc<DirectoryPages>, AskedAt), CallError> {
        if !dir.vnode.is_directory() {
            return Err(Fault::NotDirectory.into());
        }
        if let Some(told) = self.promised(dir)
            && let Some(pages) = self.cell.directories.get(dir, version(&told.status))
        {
            return Ok((pages, told.start));
        }
        let (told, data) = self.fetch(dir, 0, DIRECTORY_BYTES_MAX)?;
        let pages = DirectoryPages::new(dir, version(&told.status), data);
        let pages = Arc::new(pages.ok_or(Fault::Damaged)?);
        self.cell.directories.put(&pages);
        Ok((pages, told.start))
    }

    /// A range of a file, of a directory's pages, or of a link's target.
    pub(crate) fn fetch(
        &self,
        fid: Fid,
        offset: u64,
        length: usize,
    ) -> Result<(Told, Bytes), CallError> {
        let position = i64::try_from(offset).map_err(|_| Fault::TooBig)?;
        let call = FilesCall::FetchData64 { fid: foreign(fid)?, position, length: length as i64 };
        self.at(fid.volume, true, |server| {
            let start = self.begin();
            let (data, answer) =
                self.cell.servers.fetch(server, self.user, &call, length, self.cancel)?;
            let FilesAnswer::FetchData64 { status, callback, .. } = answer else {
                return Err(Trouble::Odd);
            };
            // Fewer bytes than the file has would be taken for zeros.
            let there = status.length().saturating_sub(offset).min(length as u64);
            if kind(fid, &status).is_none() || data.len() as u64 != there {
                return Err(Trouble::Odd);
            }
            Ok((self.learn(server, start, (fid, status), callback), data))
        })
    }

    /// The file that a directory names, as its pages say.
    ///
    /// # Errors
    /// `NotFound`; the service's refusal.
    pub(crate) fn named(&self, dir: Fid, name: &Name) -> Result<Fid, CallError> {
        let (pages, _) = self.pages(dir)?;
        let found = pages.find(name).map_err(|()| Fault::Damaged)?;
        found.ok_or(CallError::Fault(Fault::NotFound))
    }

    pub(crate) fn lookup(&self, dir: Fid, name: &Name) -> Result<Answered, CallError> {
        let (pages, start) = self.pages(dir)?;
        let Some(fid) = pages.find(name).map_err(|()| Fault::Damaged)? else {
            // The cache manager remembers what is absent, too.
            self.finish(Answered { answer: Answer::Done, claims: vec![(dir, start)] });
            return Err(Fault::NotFound.into());
        };
        let told = self.status(fid)?;
        let (status, dir_version) = (told.shown()?, pages.version);
        Ok(Answered {
            answer: Answer::Entry { status, dir_version, sole: false },
            claims: vec![(dir, start), told.claim()],
        })
    }

    pub(crate) fn read_dir(
        &self,
        dir: Fid,
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Answered, CallError> {
        let (pages, start) = self.pages(dir)?;
        let mut found = pages.entries(cookie.0, ENTRIES_MAX + 1);
        let mut room = bytes_max as usize;
        let mut fits = |entry: &NamedFile| {
            let bytes = ENTRY_BYTES + entry.name.as_bytes().len();
            room.checked_sub(bytes).inspect(|left| room = *left).is_some()
        };
        let count = found.iter().take_while(|entry| fits(entry)).count();
        let count = count.clamp(1, ENTRIES_MAX).min(found.len());
        let end = count == found.len();
        found.truncate(count);
        // The number of a vnode tells directories from all others and no more.
        let wanted = found.iter().map(|entry| entry.fid);
        let wanted: Vec<Fid> = wanted.filter(|fid| plus || !fid.vnode.is_directory()).collect();
        let known = self.statuses(&wanted)?;
        let of = |fid: Fid| known.iter().find(|told| told.fid == fid);
        let mut claims = vec![(dir, start)];
        let entries = found.into_iter().map(|NamedFile { name, fid, slot }| {
            let status = of(fid).and_then(|told| told.shown().ok());
            let other = if fid.vnode.is_directory() { Kind::Directory } else { Kind::File };
            let kind = status.map_or(other, |status| status.kind);
            let status = status.filter(|_| plus);
            if status.is_some() {
                claims.extend(of(fid).map(Told::claim));
            }
            DirEntry { name, fid, kind, cookie: Cookie(slot), status, sole: false, target: None }
        });
        let entries = entries.collect();
        let answer = Answer::Entries { entries, end, dir_version: pages.version };
        Ok(Answered { answer, claims })
    }

    /// The status of these files; those that the server does not tell are missing.
    fn statuses(&self, fids: &[Fid]) -> Result<Vec<Told>, CallError> {
        let mut all = Vec::with_capacity(fids.len());
        let mut unknown = Vec::new();
        for fid in fids {
            match self.promised(*fid) {
                Some(told) => all.push(told),
                None => unknown.push(*fid),
            }
        }
        for some in unknown.chunks(FIDS_MAX) {
            let foreign: Result<Vec<_>, Fault> = some.iter().map(|fid| foreign(*fid)).collect();
            let foreign = AfsFids::new(foreign?).map_err(|_| Fault::Invalid)?;
            let call = FilesCall::InlineBulkStatus { fids: foreign };
            let volume = some[0].volume;
            let (answer, server, start) = match self.ask(volume, &call) {
                // A server from before the call.
                Err(CallError::Fault(Fault::Unsupported)) => break,
                answer => answer?,
            };
            let FilesAnswer::InlineBulkStatus { status, callbacks, .. } = answer else {
                return Err(CallError::Unreadable);
            };
            let (status, promises) = (status.as_slice(), callbacks.as_slice());
            if status.len() != some.len() || promises.len() != some.len() {
                return Err(CallError::Unreadable);
            }
            let each = some.iter().zip(status).zip(promises);
            let told = each.filter(|((_, status), _)| status.error_code == 0);
            all.extend(told.map(|((fid, status), promise)| {
                self.learn(server, start, (*fid, *status), *promise)
            }));
        }
        Ok(all)
    }

    pub(crate) fn get_status(&self, fid: Fid) -> Result<Answered, CallError> {
        let told = self.fetch_status(fid)?;
        Ok(Answered { answer: Answer::Status(told.shown()?), claims: vec![told.claim()] })
    }

    pub(crate) fn root(&self, volume: &Name) -> Result<Answered, CallError> {
        let found = self.cell.locations.databases().find(&WhichVolume::Name(volume.clone()))?;
        self.get_status(Fid::root(found.id))
    }

    /// A file has the rights that its directory's list gives.
    pub(crate) fn rights(&self, fid: Fid) -> Result<Answered, CallError> {
        let mut claims = Vec::new();
        let mut of = fid;
        if !fid.vnode.is_directory() {
            let told = self.status(fid)?;
            claims.push(told.claim());
            let dir = parent(fid, &told.status);
            if dir.vnode.is_directory() {
                of = dir;
            }
        }
        let told = self.fetch_status(of)?;
        claims.push(told.claim());
        let rights = told.status.caller_access & RIGHTS;
        Ok(Answered { answer: Answer::Rights { of, rights }, claims })
    }

    pub(crate) fn read_link(&self, fid: Fid) -> Result<Answered, CallError> {
        let (told, mut data) = self.fetch(fid, 0, TARGET_BYTES_MAX + 1)?;
        match kind(fid, &told.status) {
            Some(Kind::Symlink) if data.len() <= TARGET_BYTES_MAX => {}
            // The dot at the end says that it is a mount point.
            Some(Kind::MountPoint) if data.len() <= TARGET_BYTES_MAX => {
                if data.last() == Some(&b'.') {
                    data.truncate(data.len() - 1);
                }
            }
            Some(Kind::Symlink | Kind::MountPoint) => return Err(Fault::NameTooLong.into()),
            _ => return Err(Fault::Invalid.into()),
        }
        Ok(Answered { answer: Answer::Target(data), claims: vec![told.claim()] })
    }

    /// The status of a volume, as its server tells it.
    fn ask_volume_status(&self, id: VolumeId) -> Result<FetchVolumeStatus, CallError> {
        let volume = foreign(Fid::root(id))?.volume.cast_signed();
        let (answer, ..) = self.ask(id, &FilesCall::GetVolumeStatus { volume })?;
        let FilesAnswer::GetVolumeStatus { status, .. } = answer else {
            return Err(CallError::Unreadable);
        };
        Ok(status)
    }

    pub(crate) fn volume_status(&self, fid: Fid) -> Result<Answered, CallError> {
        let status = self.ask_volume_status(fid.volume)?;
        let bytes = |kib: i32| u64::try_from(kib).unwrap_or(0) * KIB;
        Ok(Answered::plain(Answer::Volume(VolumeStatus {
            quota_bytes: bytes(status.max_quota),
            quota_files: 0,
            used_bytes: bytes(status.blocks_in_use),
            used_files: 0,
            partition_bytes: bytes(status.partition_blocks_max),
            partition_free_bytes: bytes(status.partition_blocks_available),
        })))
    }

    pub(crate) fn examine(&self, which: &WhichVolume) -> Result<Answered, CallError> {
        let databases = self.cell.locations.databases();
        let located = databases.find(which)?;
        let state = databases.state(&|| self.state_there(located.id))?;
        let volumes = vec![volume_info(&located, state)];
        Ok(Answered::plain(Answer::Volumes { volumes, end: true }))
    }

    /// Whether the server has the volume and serves it. It tells strangers no status of a volume
    /// that they may not read, which it has all the same.
    fn state_there(&self, volume: VolumeId) -> Result<VolumeState, CallError> {
        match self.ask_volume_status(volume) {
            Ok(status) if status.online == 0 || status.in_service == 0 => Ok(VolumeState::Offline),
            Ok(_) | Err(CallError::Fault(Fault::AccessDenied | Fault::NotPermitted)) => {
                Ok(VolumeState::Online)
            }
            Err(CallError::Fault(Fault::Offline)) => Ok(VolumeState::Offline),
            Err(error) => Err(error),
        }
    }

    /// The record of the server of a session with one, if the server answers.
    pub(crate) fn own_record(&self) -> Result<Answered, CallError> {
        let databases = self.cell.locations.databases();
        let record = databases.server().ok_or(Fault::Unsupported)?.clone();
        if !self.cell.is_there() {
            return Err(CallError::TimedOut);
        }
        let seen = Revised { record, revision: Revision::default() };
        Ok(Answered::plain(Answer::Servers(vec![seen])))
    }
}

fn volume_info(located: &Located, state: VolumeState) -> VolumeInfo {
    VolumeInfo {
        id: located.id,
        tree: located.read_write,
        kind: located.kind,
        state,
        partition: PartitionNo::default(),
        epoch: located.epoch,
        origin: None,
        name: located.name.clone(),
        created: Timestamp::default(),
        updated: Timestamp::default(),
        quota_bytes: 0,
        quota_files: 0,
        used_bytes: 0,
        used_files: 0,
        encrypted: None,
    }
}

/// The file that a call made, which must be of the directory's volume.
pub(crate) fn made_in(dir: Fid, made: afs3::structs::AfsFid) -> Result<Fid, CallError> {
    let made = local(made);
    let is_sound = made.volume == dir.volume && made.vnode.0 != 0;
    if is_sound { Ok(made) } else { Err(CallError::Unreadable) }
}

/// Of a volume as a call names it.
pub(crate) fn same_volume(one: Fid, other: Fid) -> Result<VolumeId, CallError> {
    if one.volume == other.volume { Ok(one.volume) } else { Err(Fault::CrossVolume.into()) }
}
