//! The cache manager as a whole: its life, and the order between replies into the kernel and
//! breaks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Remote, clock};
use parking_lot::Mutex;
use types::{Caller, Fid, Time};

use crate::core::Core;
use crate::events::EventListener;
use crate::mount_shared::MountShared;
use crate::{Error, KernelPort, RequestContext, Stamp, VenusConfig};

/// A file system in fids. Blocks the calling thread; any number of threads may call.
pub struct Venus {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Venus {
    /// On top of `remote`, whose events it takes over.
    ///
    /// # Errors
    /// If the cache directory of the configuration cannot be used, or no thread be started.
    pub fn new(remote: Arc<dyn Remote>, config: VenusConfig) -> std::io::Result<Self> {
        Self::beside(&Arc::default(), remote, config, false)
    }

    /// One of several that share what they may take. `own_locks`: nobody can change the volume.
    pub(crate) fn beside(
        common: &Arc<MountShared>,
        remote: Arc<dyn Remote>,
        config: VenusConfig,
        own_locks: bool,
    ) -> std::io::Result<Self> {
        let core = Arc::new(Core::new(common, remote, config, own_locks)?);
        let _ = core.this.set(Arc::downgrade(&core));
        let busy = Arc::clone(&core);
        let janitor = std::thread::Builder::new()
            .name("venus-janitor".into())
            .spawn(move || busy.look_after())?;
        let sending = Arc::clone(&core);
        let flusher = std::thread::Builder::new()
            .name("venus-journal".into())
            .spawn(move || sending.flush_journal())?;
        let asleep = Arc::downgrade(&core);
        clock::when_it_jumps(Box::new(move || {
            asleep.upgrade().is_some_and(|core| core.wake_janitor())
        }));
        core.remote.set_events(Arc::new(EventListener(Arc::downgrade(&core))));
        Ok(Venus { core, threads: Mutex::new(vec![janitor, flusher]) })
    }

    /// Who hears what the kernel must forget. Set before the first request of the kernel.
    pub fn set_invalidate(&self, invalidate: Arc<dyn KernelPort>) {
        *self.core.invalidate.write() = invalidate;
    }

    /// Runs `reply`, which writes a reply into the kernel, with whether the answer stamped `stamp`
    /// may still be cached there. Breaks wait until it is done, so that their notifications come
    /// behind it. It must not call into venus.
    pub fn answering<R>(&self, stamp: Stamp, reply: impl FnOnce(bool) -> R) -> R {
        let breaks = self.core.gate.read();
        reply(*breaks == stamp.0)
    }

    /// For how long the kernel may keep what it is told now, if nothing more is heard. `None`:
    /// until it is taken back. Over a network that is what is left of the lease: if this process is
    /// stopped, the kernel must not go on answering for it when the server has given it up (CB-4).
    pub fn kernel_keeps_for(&self) -> Option<Duration> {
        if self.is_beside_server() {
            return None;
        }
        let until =
            Time::from_start(Duration::from_nanos(self.core.trusted_until.load(Ordering::Acquire)));
        Some(until.since(clock::now()))
    }

    /// Whether the server is on this machine, as far as is known.
    pub fn is_beside_server(&self) -> bool {
        self.core.remote.passes_descriptors()
    }

    /// How many answers were given here that the server then gave otherwise: none, or something is
    /// wrong (DE-5).
    pub fn differences(&self) -> u64 {
        self.core.differences.load(Ordering::Acquire)
    }

    /// Everything written in the volume of `fid` is stable afterwards.
    ///
    /// # Errors
    /// As the service says, or that a file could not be sent.
    pub fn syncfs(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        let core = &self.core;
        let files: Vec<_> =
            core.files().into_iter().filter(|file| file.fid.volume == fid.volume).collect();
        for file in &files {
            core.send_all(file, request.cancel)?;
        }
        core.drain_all(request.cancel)?;
        core.commit_all(request);
        for file in files.iter().filter(|file| !file.is_stable()) {
            core.commit(request, file)?;
        }
        core.call_commit(request, fid, true)?;
        core.tell_any_lost()
    }

    /// Everything that was answered here is at the server, as far as it takes it: what it refuses
    /// is told to those who wrote it.
    ///
    /// # Errors
    /// `Interrupted`.
    pub fn send_written(&self, request: &RequestContext<'_>) -> Result<(), Error> {
        let core = &self.core;
        for file in core.files() {
            if core.send_all(&file, request.cancel) == Err(Error::Interrupted) {
                return Err(Error::Interrupted);
            }
        }
        core.drain_all(request.cancel)
    }

    /// Everything that was answered here is at the server and stable. Asks the server nothing if it
    /// was before. Waits for a server that is away: what it does not know yet is nowhere else.
    ///
    /// # Errors
    /// The first error of a write that came to light here.
    pub fn hand_over(&self) -> Result<(), Error> {
        let core = &self.core;
        let request = RequestContext::of(&Caller::ROOT);
        let mut result = Ok(());
        let files = core.files();
        let errors: Vec<u64> = files.iter().map(|file| file.data.lock().errors).collect();
        for file in &files {
            result = result.and(core.send_all(file, None));
        }
        result = result.and(core.drain_all(None));
        for (file, before) in files.iter().zip(errors) {
            let data = file.data.lock();
            let failed =
                if data.errors > before { data.error.clone().map_or(Ok(()), Err) } else { Ok(()) };
            result = result.and(failed);
        }
        core.commit_all(&request);
        // A commit that found the server changed has data to send again, and some may have been
        // another's.
        for file in core.files().iter().filter(|file| !file.is_stable()) {
            result = result.and(core.commit(&request, file));
        }
        result.and(core.tell_any_lost())
    }

    /// [`Venus::hand_over`]; then nothing is held any more, and background threads have ended. Open
    /// handles are no use afterwards. Doing it again does nothing.
    ///
    /// # Errors
    /// As [`Venus::hand_over`].
    pub fn shutdown(&self) -> Result<(), Error> {
        let core = &self.core;
        if core.stopped.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let result = self.hand_over();
        let held = {
            let mut tables = core.tables.lock();
            let mut held = Vec::new();
            for (fid, node) in tables.nodes.each_whole().filter(|(_, node)| node.held) {
                node.opens = 0;
                held.push(*fid);
            }
            held
        };
        core.unhold(held);
        let ended = core.tables.lock().end_delegations();
        core.give_back(&ended);
        self.stop();
        result
    }

    /// Ends the background threads and brings the disk cache into order for the next time. Done by
    /// dropping, too; doing it again does nothing.
    pub fn stop(&self) {
        let core = &self.core;
        core.chores.lock().stop = true;
        core.poke.notify_all();
        core.journal.stop();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        core.leaving.cancel();
        core.followers.stop();
        core.senders.stop();
        core.readers.stop();
        core.fillers.stop();
        core.unpin_all();
        if let Some(disk) = core.common.disk() {
            disk.rest_all();
        }
    }
}

impl Drop for Venus {
    fn drop(&mut self) {
        self.stop();
    }
}
