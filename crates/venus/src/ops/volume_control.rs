//! Answers about a volume and its servers (`fs examine`, `fs whereis`, ...), and dropping caches on
//! request (`fs flush`).
//!
//! The client asks for each answer anew. Dropping a cache never loses changes: unsent writes are
//! sent first, and state that a delegation covers stays, since only this client knows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Cancel, Remote};
use parking_lot::Mutex;
use types::{
    Answer, Call, Caller, CellCall, Fault, Fid, PartitionInfo, ServerInfo, VolumeCall, VolumeId,
    VolumeInfo, VolumeStatus, WhichVolume,
};

use crate::base::{Attributes, Error, RequestContext};
use crate::cache::{Cache, Siblings};
use crate::calls::{Calls, Flusher, Space};
use crate::names::is_made_up;
use crate::session::Ground;
use crate::writeback::Writeback;

/// How long the space of a volume waits for its server. umount(8) asks for it, and must not wait
/// for a server that is away.
const SPACE_PATIENCE: Duration = Duration::from_millis(250);

/// How long a silent server is not asked again for the space.
const SILENCE: Duration = Duration::from_secs(2);

/// A volume's space, as far as it is known.
#[derive(Default)]
struct KnownSpace {
    last: VolumeStatus,
    /// The server did not answer: until then it is not asked again.
    silent_until: Option<Instant>,
}

/// A volume and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSummary {
    /// The volume's record.
    pub volume: VolumeInfo,
    /// The partition that has it.
    pub partition: PartitionInfo,
    /// The server that answered.
    pub server: ServerInfo,
}

impl VolumeSummary {
    /// The volume as the server behind `remote` reports it.
    ///
    /// # Errors
    /// `NoVolume` if it has none such; the server's refusal.
    pub fn of(
        remote: &dyn Remote,
        request: &RequestContext<'_>,
        id: VolumeId,
    ) -> Result<VolumeSummary, Error> {
        let ask = |call| Ok::<_, Error>(remote.call(&Caller::ROOT, call, request.cancel)?.answer);
        let examined = ask(Call::Volume(VolumeCall::Examine { volume: WhichVolume::Id(id) }))?;
        let Answer::Volumes { volumes, .. } = examined else { return Err(Error::Protocol) };
        let volume = volumes.into_iter().next().ok_or(Error::Protocol)?;
        let Answer::Partitions(partitions) = ask(Call::Volume(VolumeCall::Partitions))? else {
            return Err(Error::Protocol);
        };
        let partition =
            partitions.into_iter().find(|one| one.no == volume.partition).ok_or(Error::Protocol)?;
        let Answer::Servers(servers) = ask(Call::Cell(CellCall::Me))? else {
            return Err(Error::Protocol);
        };
        let server = servers.into_iter().next().map(|seen| seen.record).ok_or(Error::Protocol)?;
        Ok(VolumeSummary { volume, partition, server })
    }
}

/// Answers about a volume and its servers, limits, and dropping caches on request.
pub struct VolumeControl {
    pub(super) ground: Ground,
    siblings: Arc<Siblings>,
    cache: Arc<Cache>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    space: Arc<Space>,
    writeback: Arc<Writeback>,
    known_space: Mutex<KnownSpace>,
}

impl VolumeControl {
    pub(crate) fn new(
        ground: &Ground,
        siblings: &Arc<Siblings>,
        cache: &Arc<Cache>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        space: &Arc<Space>,
        writeback: &Arc<Writeback>,
    ) -> Self {
        VolumeControl {
            ground: ground.clone(),
            siblings: Arc::clone(siblings),
            cache: Arc::clone(cache),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            space: Arc::clone(space),
            writeback: Arc::clone(writeback),
            known_space: Mutex::default(),
        }
    }

    /// Finds a file of the volume by its number alone, or the directory that has the directory of
    /// that number; counts one more reference of the kernel to it.
    ///
    /// # Errors
    /// `Stale` if no file that has a name is there, `NotPermitted` to all but the superuser and
    /// administrators of the cell, whatever this client knows.
    pub fn by_vnode(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        parent: bool,
    ) -> Result<Attributes, Error> {
        if is_made_up(fid) {
            return Err(Fault::Stale.into());
        }
        // The server may not know yet what was made here, nor where a directory was moved to. The
        // journal's entries are found by whole fids, which a handle does not have.
        self.flusher.flush_all(request.cancel)?;
        let call = Call::ByVnode { fid: fid.masked(), parent };
        let found = self.calls.status_by(request, call)?;
        self.ground.names.lock().nodes.refer(found.status.fid);
        Ok(found)
    }

    /// Space and files of the volume of `fid`; those known last if the server does not answer soon.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn statfs(&self, request: &RequestContext<'_>, fid: Fid) -> Result<VolumeStatus, Error> {
        {
            let known = self.known_space.lock();
            if known.silent_until.is_some_and(|until| Instant::now() < until) {
                return Ok(known.last);
            }
        }
        let soon = Cancel::within(SPACE_PATIENCE);
        let found = self.ask_space(&RequestContext { cancel: Some(&soon), ..*request }, fid);
        let mut known = self.known_space.lock();
        match found {
            Err(Error::Interrupted | Error::TimedOut | Error::Lost) => {
                known.silent_until = Some(Instant::now() + SILENCE);
                Ok(known.last)
            }
            Ok(volume) => {
                *known = KnownSpace { last: volume, silent_until: None };
                drop(known);
                self.space.learn(&volume, self.ground.config.dirty_bytes_max as u64);
                Ok(volume)
            }
            Err(error) => Err(error),
        }
    }

    /// The files with written bytes that the server does not have yet, or may lose, with their
    /// numbers, and how many changes of names and status there are of this kind.
    pub fn unsaved(&self) -> (Vec<(Fid, u64)>, u64) {
        let mut files = self.ground.names.files();
        // The journal may have bytes of a file before its removal.
        files.retain(|file| !self.ground.names.is_removed(file.fid));
        let mut files: Vec<_> = files.iter().map(|file| (file.fid, file.unsaved())).collect();
        files.retain(|(_, bytes)| *bytes > 0);
        files.sort_unstable();
        (files, self.flusher.unsaved())
    }

    /// Whether the server answers within this time.
    pub fn answers(&self, fid: Fid, patience: Duration) -> bool {
        let soon = Cancel::within(patience);
        let request = RequestContext { cancel: Some(&soon), ..RequestContext::of(&Caller::ROOT) };
        let asked = self.ground.server.ask(&request, Call::VolumeStatus { fid });
        !matches!(asked, Err(Error::Interrupted | Error::TimedOut | Error::Lost))
    }

    /// Asks the server, behind the changes that were answered here.
    fn ask_space(&self, request: &RequestContext<'_>, fid: Fid) -> Result<VolumeStatus, Error> {
        if let Some(cancel) = request.cancel {
            self.flusher.wait_until_all_flushed(cancel)?;
        }
        match self.calls.call(request, Call::VolumeStatus { fid })? {
            Answer::Volume(volume) => Ok(volume),
            _ => Err(Error::Protocol),
        }
    }

    /// The volume of `fid`, with this client's unsent writes.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn about(&self, request: &RequestContext<'_>, fid: Fid) -> Result<VolumeSummary, Error> {
        self.flusher.flush_all(request.cancel)?;
        VolumeSummary::of(self.ground.server.remote(), request, fid.volume)
    }

    /// The server's report about itself, as JSON.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn report(&self, request: &RequestContext<'_>) -> Result<String, Error> {
        match self.calls.call(request, Call::ServerReport)? {
            Answer::Report(report) => Ok(report),
            _ => Err(Error::Protocol),
        }
    }

    /// Limits the volume of `fid`, in bytes and files; 0: no limit.
    ///
    /// # Errors
    /// The service's refusal: only the superuser may.
    pub fn set_quota(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        bytes: u64,
        files: u64,
    ) -> Result<VolumeStatus, Error> {
        self.flusher.flush_all(request.cancel)?;
        match self.calls.call(request, Call::SetQuota { fid, bytes, files })? {
            Answer::Volume(status) => {
                self.space.learn(&status, self.ground.config.dirty_bytes_max as u64);
                Ok(status)
            }
            _ => Err(Error::Protocol),
        }
    }

    /// Bytes in the disk cache and its limit; `None` without a disk cache.
    pub fn disk_cache(&self) -> Option<(u64, u64)> {
        self.cache.disk().map(|disk| disk.usage())
    }

    /// Sets the limit of the disk cache, which this shares with the other volumes of its cell;
    /// `None`: that of the configuration. Returns false without a disk cache.
    pub fn resize_disk_cache(&self, bytes_max: Option<u64>) -> bool {
        let bytes_max = bytes_max.unwrap_or(self.ground.config.cache_bytes_max);
        self.cache.disk().map(|disk| disk.resize(bytes_max)).is_some()
    }

    /// Drops the cache of a file or directory, here and in the kernel.
    ///
    /// # Errors
    /// Writes that could not be sent.
    pub fn refresh(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        if let Some(file) = self.ground.names.file_of(fid) {
            self.writeback.send_all(&file, request.cancel)?;
        }
        self.flusher.flush_all(request.cancel)?;
        self.forget_file(fid);
        self.ground.names.advance_gate();
        let kernel = self.ground.kernel.port();
        if fid.vnode.is_directory() {
            kernel.directory(fid);
        } else {
            kernel.inode_data(fid);
        }
        Ok(())
    }

    /// Drops the cache of a volume, here and in the kernel.
    ///
    /// # Errors
    /// Writes that could not be sent.
    pub fn refresh_volume(
        &self,
        request: &RequestContext<'_>,
        volume: VolumeId,
    ) -> Result<(), Error> {
        for file in self.ground.names.files().iter().filter(|file| file.fid.volume == volume) {
            self.writeback.send_all(file, request.cancel)?;
        }
        self.flusher.flush_all(request.cancel)?;
        let mut fids = self.ground.names.lock().nodes.fids();
        fids.retain(|fid| fid.volume == volume);
        fids.iter().for_each(|fid| self.forget_file(*fid));
        if let Some(disk) = self.cache.disk() {
            disk.remove_volume(volume);
        }
        self.ground.names.advance_gate();
        self.ground.kernel.port().all();
        Ok(())
    }

    /// The file's status and names are asked for again, unless a delegation covers it.
    fn forget_file(&self, fid: Fid) {
        {
            let mut tables = self.ground.names.lock();
            if !tables.nodes.covers(fid) {
                tables.nodes.void(fid);
                if fid.vnode.is_directory() {
                    tables.unsure(fid);
                }
            }
        }
        if let Some(file) = self.ground.names.file_of(fid) {
            self.cache.forget_data(&mut file.data.lock());
        }
        self.siblings.clear();
        if let Some(disk) = self.cache.disk() {
            disk.remove(fid);
        }
    }
}
