//! A mounted volume: from `mount(2)` to the last request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use types::{Caller, Fid, Name};
use venus::Venus;
use zerocopy::IntoBytes;

use crate::channel::{Channel, Device, Received, buffer};
use crate::dispatch::Dispatch;
use crate::init::{Agreement, negotiate};
use crate::interrupts::Interrupts;
use crate::locks::Locks;
use crate::mounting::{self, MountError, Target};
use crate::nodes::Nodes;
use crate::notify::Notifier;
use crate::request::{Operation, Request};
use crate::workers::{Workers, WorkersConfig};

/// What is to be mounted, and where.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// The volume whose root appears there.
    pub volume: Name,
    /// What `mount` and `df` show as the source, such as `rialto:cell`.
    pub source: String,
    /// Others than the one who mounts may use it, as mode bits allow.
    pub allow_other: bool,
    /// Its threads.
    pub workers: WorkersConfig,
}

impl MountConfig {
    /// With as many threads as this machine's cores want, and open to others if root mounts it.
    pub fn new(mountpoint: impl Into<PathBuf>, volume: Name, source: impl Into<String>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        MountConfig {
            mountpoint: mountpoint.into(),
            volume,
            source: source.into(),
            allow_other: rustix::process::geteuid().is_root(),
            workers: WorkersConfig::for_cores(cores),
        }
    }
}

/// A mounted volume. Dropping it unmounts.
pub struct Mount {
    mountpoint: PathBuf,
    workers: Arc<Workers<Dispatch>>,
}

impl Mount {
    /// Mounts, and serves the kernel's requests from threads of its own until it is unmounted, by [`Self::unmount`] or from
    /// outside. Takes over what `venus` invalidates.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted.
    pub fn start(config: MountConfig, venus: Arc<Venus>) -> Result<Mount, MountError> {
        let root = venus.root(&venus::Request::of(&Caller::ROOT), &config.volume)?.status.fid;
        let target = Target { path: config.mountpoint, source: config.source, allow_other: config.allow_other };
        let device: Arc<dyn Channel> = Arc::new(Device::new(mounting::mount(&target)?));
        match Self::serve(&device, root, venus, config.workers) {
            Ok(workers) => {
                mounting::raise_read_ahead(&target.path);
                Ok(Mount { mountpoint: target.path, workers })
            }
            Err(error) => {
                let _ = mounting::unmount(&target.path);
                Err(error)
            }
        }
    }

    fn serve(
        device: &Arc<dyn Channel>,
        root: Fid,
        venus: Arc<Venus>,
        config: WorkersConfig,
    ) -> Result<Arc<Workers<Dispatch>>, MountError> {
        let agreement = agree(&**device).map_err(MountError::Negotiation)?;
        tracing::info!(minor = agreement.minor, flags = format!("{:#x}", agreement.flags), "agreed with the kernel");
        let nodes = Arc::new(Nodes::new(root));
        let notifying = device.another().map_err(MountError::Device)?;
        venus.set_invalidate(Arc::new(Notifier::new(notifying, Arc::clone(&nodes), agreement)));
        let dispatch = Dispatch { venus, nodes, interrupts: Interrupts::default(), locks: Locks::default(), agreement };
        Workers::start(dispatch, config, device).map_err(MountError::Threads)
    }

    /// Where it is.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Waits until it is unmounted and every request is seen through.
    pub fn wait(&self) {
        self.workers.wait();
    }

    /// Unmounts, and waits for the end if nobody uses it. While it is in use it leaves its place and serves its users until
    /// the last is gone: [`Self::wait`] for that.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn unmount(&self) -> std::io::Result<()> {
        if self.workers.is_over() {
            return Ok(());
        }
        mounting::unmount(&self.mountpoint)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(%error, path = %self.mountpoint.display(), "cannot unmount");
        }
    }
}

/// Takes the kernel's first request, which is always `INIT`.
fn agree(channel: &dyn Channel) -> Result<Agreement, Errno> {
    let mut bytes = buffer();
    loop {
        if channel.receive(&mut bytes)? == Received::End {
            return Err(Errno::NODEV);
        }
        let request = Request::decode(&bytes).map_err(|_| Errno::PROTO)?;
        let Operation::Init { of, flags2 } = request.operation else { return Err(Errno::PROTO) };
        let unique = request.header.unique;
        match negotiate(of, flags2) {
            Ok((out, agreement)) => {
                channel.reply(unique, Ok(&[std::io::IoSlice::new(out.as_bytes())]))?;
                if let Some(agreement) = agreement {
                    return Ok(agreement);
                }
            }
            Err(error) => {
                let _ = channel.reply(unique, Err(error));
                return Err(error);
            }
        }
    }
}
