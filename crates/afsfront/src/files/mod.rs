//! RXAFS, the file service.
//!
//! Model: each procedure finds the files that it names ([`find`]), makes its calls as the caller,
//! and ends with the status of what it touched. A foreign status is made of the file's, promised
//! to the caller's host, and of the rights of the caller (`shown.rs`). Directories
//! are shown as AFS's pages (`pages.rs`), so their length is that of the pages.

mod data;
mod lists;
mod locks;
mod names;
mod pages;
mod shown;
mod told_versions;
mod volumes;

use std::cell::Cell;

use afs3::files::{FilesAnswer, FilesCall, capability};
use afs3::structs::{AfsFid, AfsFids, BulkStatus, CallBack, CallBacks, FetchStatus, VolSync};
use afs3::xdr::XdrList;
use types::{Fault, Status, Timestamp, VolumeId, VolumeInfo, VolumeState};

use crate::{CallStream, Refusal, Services, fids};

pub(crate) use pages::list_pages;
pub(crate) use shown::{foreign_target, mode_of, owner};

use locks::ForeignLocks;
use pages::DirectoryPages;
use told_versions::ToldVersions;

/// The abilities that a file server tells.
const CAPABILITIES: u32 =
    capability::ERROR_TRANSLATION | capability::FILES_64_BIT | capability::WRITE_LOCK_ACL;
/// The kind of promise that others may have of the file, too.
const SHARED: u32 = 2;
/// Linux's numbers.
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
/// The version of the extended statistics that clients ask for.
const XSTATS_VERSION: i32 = 2;

/// See the head of the file. One for all callers of a server.
#[derive(Default)]
pub struct FileService {
    pages: DirectoryPages,
    locks: ForeignLocks,
    versions: ToldVersions,
}

/// The host that calls.
#[derive(Clone, Copy, Debug)]
pub struct FileHost {
    /// The driver's number of it, for locks.
    pub number: u64,
    /// It takes error numbers as codes of UAE, as it has said. Linux's own client knows few others.
    pub takes_uae: bool,
}

impl FileHost {
    /// The code as this host takes it. Of a full volume or disk it gets the error number, too:
    /// upon the file service's own codes kafs asks another server, of which there is none, and
    /// fails with EDESTADDRREQ.
    fn code(self, refusal: Refusal) -> i32 {
        match refusal {
            Refusal(code) if !self.takes_uae => code,
            Refusal::DISK_FULL => afs3::errors::on_wire(ENOSPC),
            Refusal::OVER_QUOTA => afs3::errors::on_wire(EDQUOT),
            Refusal(code) => afs3::errors::on_wire(code),
        }
    }
}

/// One call: the caller's way to the services, and what all procedures share.
struct FileCall<'a> {
    service: &'a FileService,
    services: &'a dyn Services,
    host: FileHost,
    /// That of the file that was looked for last.
    volume: Cell<VolumeId>,
}

impl FileService {
    /// Answers a call of a host's user.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(
        &self,
        services: &dyn Services,
        host: FileHost,
        call: FilesCall,
        stream: &mut dyn CallStream,
    ) -> Result<FilesAnswer, Refusal> {
        let at = FileCall { service: self, services, host, volume: Cell::default() };
        at.answer(call, stream).map_err(|refusal| Refusal(host.code(refusal_of(&at, refusal))))
    }

    /// Ends the locks of a host whose time is over. The driver calls it each few seconds.
    pub fn end_late_locks(&self, services: &dyn Services, host: u64) {
        self.locks.end_late(services, host);
    }
}

/// See [`fids::find`].
fn find(at: &FileCall<'_>, fid: AfsFid) -> Result<Status, Refusal> {
    at.volume.set(VolumeId(fid.volume.into()));
    fids::find(at.services, fid)
}

/// The refusal of a call. A volume that is on its way from one partition of the server to another
/// is busy: it serves soon, or again. A client that were told that it is not here would find in the
/// location database that it is.
fn refusal_of(at: &FileCall<'_>, refusal: Refusal) -> Refusal {
    let is_here = |info: VolumeInfo| {
        let serves = info.state == VolumeState::Online || info.state.comes();
        serves && !info.is_refill()
    };
    match refusal {
        Refusal::NO_VOLUME if at.services.volume(at.volume.get()).is_ok_and(is_here) => {
            Refusal::BUSY
        }
        refusal => refusal,
    }
}

impl FileCall<'_> {
    fn answer(&self, call: FilesCall, stream: &mut dyn CallStream) -> Result<FilesAnswer, Refusal> {
        match call {
            FilesCall::FetchStatus { fid } => {
                let (status, sync) = self.status_of(fid)?;
                let callback = self.callback();
                Ok(FilesAnswer::FetchStatus { status, callback, sync })
            }
            FilesCall::BulkStatus { fids } => {
                let (status, callbacks, sync) = self.bulk(&fids, false)?;
                Ok(FilesAnswer::BulkStatus { status, callbacks, sync })
            }
            FilesCall::InlineBulkStatus { fids } => {
                let (status, callbacks, sync) = self.bulk(&fids, true)?;
                Ok(FilesAnswer::InlineBulkStatus { status, callbacks, sync })
            }
            FilesCall::FetchData { fid, position, length } => {
                let (position, length) = (data::from_word(position)?, data::from_word(length)?);
                let send = data::Announce::Word;
                let (status, sync) = self.fetch(fid, position, length, send, stream)?;
                let callback = self.callback();
                Ok(FilesAnswer::FetchData { status, callback, sync })
            }
            FilesCall::FetchData64 { fid, position, length } => {
                let (position, length) = (data::from_words(position)?, data::from_words(length)?);
                let send = data::Announce::TwoWords;
                let (status, sync) = self.fetch(fid, position, length, send, stream)?;
                let callback = self.callback();
                Ok(FilesAnswer::FetchData64 { status, callback, sync })
            }
            FilesCall::StoreData { fid, status, position, length, file_length } => {
                let range = (position.into(), length.into(), file_length.into());
                let (status, sync) = self.store(fid, &status, range, stream)?;
                Ok(FilesAnswer::StoreData { status, sync })
            }
            FilesCall::StoreData64 { fid, status, position, length, file_length } => {
                let range = (position, length, file_length);
                let (status, sync) = self.store(fid, &status, range, stream)?;
                Ok(FilesAnswer::StoreData64 { status, sync })
            }
            FilesCall::StoreStatus { fid, status } => {
                let (status, sync) = self.store_status(fid, &status)?;
                Ok(FilesAnswer::StoreStatus { status, sync })
            }
            FilesCall::CreateFile { dir, name, status } => self.create(dir, &name, &status),
            FilesCall::MakeDir { dir, name, status } => self.make_directory(dir, &name, &status),
            FilesCall::Symlink { dir, name, target, status } => {
                self.symlink(dir, &name, target.as_bytes(), &status)
            }
            FilesCall::Link { dir, name, existing } => self.link(dir, &name, existing),
            FilesCall::RemoveFile { dir, name } => self.remove_file(dir, &name),
            FilesCall::RemoveDir { dir, name } => self.remove_directory(dir, &name),
            FilesCall::Rename { old_dir, old_name, new_dir, new_name } => {
                self.rename((old_dir, &old_name), (new_dir, &new_name))
            }
            FilesCall::FetchACL { fid } => self.fetch_list(fid),
            FilesCall::StoreACL { fid, acl } => {
                let (status, sync) = self.store_list(fid, acl.as_bytes())?;
                Ok(FilesAnswer::StoreACL { status, sync })
            }
            // kafs stores lists with it.
            FilesCall::OldStoreACL { fid, acl } => {
                let (status, sync) = self.store_list(fid, acl.as_bytes())?;
                Ok(FilesAnswer::OldStoreACL { status, sync })
            }
            FilesCall::SetLock { fid, kind } => {
                Ok(FilesAnswer::SetLock { sync: self.lock(fid, kind)? })
            }
            FilesCall::ExtendLock { fid } => {
                Ok(FilesAnswer::ExtendLock { sync: self.extend_lock(fid)? })
            }
            FilesCall::ReleaseLock { fid } => {
                Ok(FilesAnswer::ReleaseLock { sync: self.release_lock(fid)? })
            }
            FilesCall::OldSetLock { fid, kind, .. } => {
                self.lock(fid, kind).map(|_| FilesAnswer::OldSetLock {})
            }
            FilesCall::OldExtendLock { fid, .. } => {
                self.extend_lock(fid).map(|_| FilesAnswer::OldExtendLock {})
            }
            FilesCall::OldReleaseLock { fid, .. } => {
                self.release_lock(fid).map(|_| FilesAnswer::OldReleaseLock {})
            }
            FilesCall::GetVolumeStatus { volume } => self.volume_status(volume),
            FilesCall::SetVolumeStatus { volume, status, .. } => {
                self.set_volume_status(volume, &status)
            }
            FilesCall::GetVolumeInfo { .. } => Ok(volumes::ask_the_database()),
            FilesCall::GetTime {} => {
                let Timestamp { secs, nanos } = self.services.now();
                let (seconds, microseconds) = (secs as u32, nanos / 1000);
                Ok(FilesAnswer::GetTime { seconds, microseconds })
            }
            FilesCall::GetCapabilities {} => {
                let capabilities = XdrList::new(vec![CAPABILITIES]).map_err(|_| Refusal::IO)?;
                Ok(FilesAnswer::GetCapabilities { capabilities })
            }
            FilesCall::XStatsVersion {} => {
                Ok(FilesAnswer::XStatsVersion { version: XSTATS_VERSION })
            }
            // A promise that a client gives up is broken in vain at most.
            FilesCall::GiveUpCallBacks { .. } => Ok(FilesAnswer::GiveUpCallBacks {}),
            FilesCall::GiveUpAllCallBacks {} => Ok(FilesAnswer::GiveUpAllCallBacks {}),
            // As stock servers refuse them.
            FilesCall::GetRootVolume {} => Err(Refusal::FS_NOT_SUPPORTED),
            FilesCall::CheckToken { .. } => Err(Refusal::FS_REFUSED),
            FilesCall::NGetVolumeInfo { .. } => Err(Refusal::NO_VOLUME),
            FilesCall::Lookup { .. } | FilesCall::DFSSymlink { .. } | FilesCall::FsCmd { .. } => {
                Err(Refusal::INVALID)
            }
            FilesCall::FlushCPS { .. } => Err(Refusal::NOT_PERMITTED),
            FilesCall::CallBackRxConnAddr { .. }
            | FilesCall::GetStatistics {}
            | FilesCall::GetStatistics64 { .. }
            | FilesCall::GetXStats { .. } => Err(Refusal::UNKNOWN),
        }
    }

    /// The promise that came with a status.
    fn callback(&self) -> CallBack {
        CallBack { version: 1, expiration: self.services.promised_seconds(), kind: SHARED }
    }

    /// The state of a volume: a change of it tells clients that another instance is there. A
    /// volume that cannot be written is made anew when it shows another state.
    fn sync_of(&self, volume: u32) -> Result<VolSync, Refusal> {
        let info = self.services.volume(VolumeId(volume.into()))?;
        Ok(VolSync { created: info.created.secs as u32, ..VolSync::default() })
    }

    fn status_of(&self, fid: AfsFid) -> Result<(FetchStatus, VolSync), Refusal> {
        let found = find(self, fid)?;
        Ok((self.shown(found.fid)?, self.sync_of(fid.volume)?))
    }

    /// `inline`: a file that is refused does not end the whole.
    fn bulk(
        &self,
        fids: &AfsFids,
        inline: bool,
    ) -> Result<(BulkStatus, CallBacks, VolSync), Refusal> {
        let first = fids.as_slice().first().ok_or(Refusal::INVALID)?;
        let (mut all, mut callbacks) = (Vec::new(), Vec::new());
        for fid in fids.as_slice() {
            let found = find(self, *fid).and_then(|found| self.shown(found.fid));
            match found {
                Ok(status) => {
                    all.push(status);
                    callbacks.push(self.callback());
                }
                Err(refusal) if inline => {
                    let failed = FetchStatus {
                        interface_version: 1,
                        error_code: self.host.code(refusal_of(self, refusal)) as u32,
                        ..FetchStatus::default()
                    };
                    all.push(failed);
                    callbacks.push(CallBack::default());
                }
                Err(refusal) => return Err(refusal),
            }
        }
        let sync = match self.sync_of(first.volume) {
            Ok(sync) => sync,
            Err(_) if inline => VolSync::default(),
            Err(refusal) => return Err(refusal),
        };
        let many = |_| Refusal::INVALID;
        Ok((XdrList::new(all).map_err(many)?, XdrList::new(callbacks).map_err(many)?, sync))
    }
}

/// The services answered with something else than the call asks for.
fn unexpected() -> Refusal {
    Refusal::from(Fault::Medium)
}
