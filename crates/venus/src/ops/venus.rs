//! The cache manager as a whole: its start and end, and the order between replies into the kernel
//! and breaks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use client::Remote;
use types::{Caller, Fid, VolumeId};

use super::{EventListener, FileLocks, OpenDirs, VolumeControl, Xattrs};
use crate::base::{Error, KernelPort, PassthroughState, RequestContext, Stamp, VenusConfig};
use crate::core::Core;
use crate::data::{MountShared, VolumeLegacy};
use crate::delegation::{AccessRights, Changes};
use crate::names::Identity;

/// A file system in fids. Blocks the calling thread; any number of threads may call.
pub struct Venus {
    pub(crate) core: Arc<Core>,
}

impl Drop for Venus {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Venus {
    /// A cache manager on top of `remote`, whose events it receives.
    ///
    /// # Errors
    /// If the cache directory of the configuration cannot be used, or no thread be started.
    pub fn new(remote: Arc<dyn Remote>, config: VenusConfig) -> std::io::Result<Self> {
        Self::beside(&Arc::default(), remote, config, false, None)
    }

    /// A cache manager that shares memory and disk cache with others. `own_locks`: the volume is
    /// read-only. With a keeper it goes on with what a predecessor left of `volume`.
    pub(crate) fn beside(
        common: &Arc<MountShared>,
        remote: Arc<dyn Remote>,
        config: VenusConfig,
        own_locks: bool,
        volume: Option<VolumeId>,
    ) -> std::io::Result<Self> {
        let kept = config.keeper.as_ref().zip(volume);
        let legacy = kept.map(|(keeper, volume)| VolumeLegacy::new(keeper, volume)).transpose()?;
        let legacy = legacy.map(Arc::new);
        let core = Arc::new(Core::new(common, remote, config, own_locks, legacy)?);
        let janitor: Weak<Core> = Arc::downgrade(&core);
        core.ground.chores.begin(common.scheduler.seat(janitor)?);
        core.ground.server.remote().set_events(Arc::new(EventListener(Arc::downgrade(&core))));
        core.inherit();
        Ok(Venus { core })
    }

    /// Sets the receiver of invalidations. Called before the first request of the kernel.
    pub fn set_invalidate(&self, invalidate: Arc<dyn KernelPort>) {
        self.core.ground.kernel.set_port(invalidate);
    }

    /// Runs `reply`, which writes a reply into the kernel; its argument tells whether the kernel
    /// may still cache the answer stamped `stamp`. Breaks wait until it is done, so that their
    /// notifications come behind it. It must not call into venus.
    pub fn answering<R>(&self, stamp: Stamp, reply: impl FnOnce(bool) -> R) -> R {
        self.core.ground.names.answering(stamp, reply)
    }

    /// How long the kernel may cache an answer given now, without a further message. `None`: until
    /// it is invalidated. Over a network that is the rest of the lease: if this process is stopped,
    /// the kernel must not answer from its cache after the server has given up this client (CB-4).
    pub fn kernel_keeps_for(&self) -> Option<Duration> {
        (!self.is_beside_server()).then(|| self.core.ground.names.trusted_for())
    }

    /// Whether the server is on this machine, as far as is known.
    pub fn is_beside_server(&self) -> bool {
        self.core.ground.server.is_local()
    }

    /// How many answers given here differ from the server's: other than 0 is a fault (DE-5).
    pub fn differences(&self) -> u64 {
        self.core.flusher.differences()
    }

    /// Everything written in the volume of `fid` is stable afterwards. Makes no call if all was
    /// stable before: the client has noted each change that the server may lose (DU-8). It notes
    /// none for a server on this machine, into whose bodies the kernel writes, so that server is
    /// always asked.
    ///
    /// # Errors
    /// The service's refusal, or that a file could not be sent.
    pub fn syncfs(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        let core = &self.core;
        core.drop_all_removed();
        let files: Vec<_> = core
            .ground
            .names
            .files()
            .into_iter()
            .filter(|file| file.fid.volume == fid.volume)
            .collect();
        for file in &files {
            core.writeback.send_all(file, request.cancel)?;
        }
        core.flusher.flush_all(request.cancel)?;
        let must_ask = core.ground.server.is_local() || core.unstable.is_any();
        core.writeback.commit_all(request);
        for file in files.iter().filter(|file| !file.is_stable()) {
            core.writeback.commit(request, file)?;
        }
        if must_ask {
            core.calls.call_commit(request, fid, true)?;
        }
        core.unstable.report_any_loss()
    }

    /// Sends every change that was answered here. The server's refusals are reported to the
    /// applications that wrote.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn send_written(&self, request: &RequestContext<'_>) -> Result<(), Error> {
        let core = &self.core;
        for file in core.ground.names.files() {
            if core.writeback.send_all(&file, request.cancel) == Err(Error::Interrupted) {
                return Err(Error::Interrupted);
            }
        }
        core.flusher.flush_all(request.cancel)
    }

    /// Sends every change that was answered here and makes it stable. Makes no call if all was
    /// stable before. Waits for a server that is away: the changes exist only here.
    ///
    /// # Errors
    /// The first error of a write that was found here.
    pub fn hand_over(&self) -> Result<(), Error> {
        let core = &self.core;
        let request = RequestContext::of(&Caller::ROOT);
        let mut result = Ok(());
        core.drop_all_removed();
        let files = core.ground.names.files();
        let errors: Vec<u64> = files.iter().map(|file| file.data.lock().errors).collect();
        for file in &files {
            result = result.and(core.writeback.send_all(file, None));
        }
        result = result.and(core.flusher.flush_all(None));
        for (file, before) in files.iter().zip(errors) {
            let data = file.data.lock();
            let failed =
                if data.errors > before { data.error.clone().map_or(Ok(()), Err) } else { Ok(()) };
            result = result.and(failed);
        }
        core.writeback.commit_all(&request);
        // A commit that found the server restarted has data to send again, also for other files.
        for file in core.ground.names.files().iter().filter(|file| !file.is_stable()) {
            result = result.and(core.writeback.commit(&request, file));
        }
        // An unmount does not wait for a server that is away to record access times.
        if core.ground.names.lock().trusted() {
            core.send_reads();
        }
        result.and(core.unstable.report_any_loss())
    }

    /// [`Venus::hand_over`]; then ends all holds and background work. Open handles are of no use
    /// afterwards. A repeated call does nothing.
    ///
    /// # Errors
    /// As [`Venus::hand_over`].
    pub fn shutdown(&self) -> Result<(), Error> {
        let core = &self.core;
        if !core.sender.begin_shutdown() {
            return Ok(());
        }
        let result = self.hand_over();
        core.unhold(core.ground.names.close_held_files());
        let ended = core.ground.names.lock().end_delegations();
        core.writeback.give_back(&ended);
        self.stop();
        result
    }

    /// Ends the background work and writes the disk cache's maps for the next start. Dropping
    /// does it too; a repeated call does nothing.
    pub fn stop(&self) {
        let core = &self.core;
        core.ground.chores.stop();
        core.journal.stop();
        core.ground.server.leaving().cancel();
        core.ground.workers.stop();
        core.cache_bodies.unpin_all();
        core.cache.rest();
    }

    /// How the cell's mode bits see this machine's users.
    pub fn identity(&self) -> &Identity {
        &self.core.identity
    }

    /// Rights, access lists and identities.
    pub fn access(&self) -> &AccessRights {
        &self.core.rights
    }

    /// Extended attributes.
    pub fn xattrs(&self) -> &Xattrs {
        &self.core.xattrs
    }

    /// The volume as a whole.
    pub fn control(&self) -> &VolumeControl {
        &self.core.control
    }

    /// Locks of files.
    pub fn locks(&self) -> &FileLocks {
        &self.core.locks
    }

    /// Open directories.
    pub fn dirs(&self) -> &OpenDirs {
        &self.core.dirs
    }

    /// Changes of directories.
    pub fn changes(&self) -> &Changes {
        &self.core.changes
    }
}

impl Venus {
    /// The state of passthrough.
    pub fn passthrough(&self) -> PassthroughState {
        let open = self
            .core
            .ground
            .names
            .files()
            .iter()
            .filter(|file| !file.is_idle() && file.data.lock().passed.is_some())
            .count();
        let given = self.core.ground.kernel.given();
        let blanks = self.core.blanks.fresh_blanks();
        PassthroughState { why_not: self.core.cache.passes().err(), open, given, blanks }
    }
}
