//! A mounted file system that consists of one [`Handler`]: the device, the agreement with the
//! kernel and the worker threads around it, without venus. `null` is one; so is the drive of crate
//! `powercut`.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::channel::{Channel, Device};
use crate::connections::Handler;
use crate::init::Wishes;
use crate::mount::{Served, agree};
use crate::mounting::{self, MountError, MountTarget};
use crate::rings;
use crate::workers::{KernelTransport, WorkersConfig};

/// A handler whose file system is mounted. Dropping it unmounts.
pub struct Handled<H: Handler> {
    at: PathBuf,
    served: Served<H>,
}

impl<H: Handler> Handled<H> {
    /// Mounts the file system of `handler` at the directory `at`; `mount` shows `source` as its
    /// source. If root mounts it, all users may use it.
    ///
    /// # Errors
    /// See [`MountError`]; nothing stays mounted.
    pub fn start(
        at: &Path,
        source: &str,
        handler: Arc<H>,
        transport: KernelTransport,
    ) -> Result<Self, MountError> {
        let allow_other = rustix::process::geteuid().is_root();
        let target = MountTarget {
            path: at.to_owned(),
            source: source.to_owned(),
            allow_other,
            read_only: false,
            options: crate::MountOptions::default(),
        };
        let (device, detached) = mounting::begin(&target)?;
        if let Some(detached) = detached {
            mounting::attach_at(detached.as_fd(), at)?;
        }
        let device = Device::new(device);
        let descriptor = device.descriptor();
        let device: Arc<dyn Channel> = Arc::new(device);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let config = WorkersConfig::for_cores(cores);
        let serve = || {
            let rings = transport != KernelTransport::Device && rings::available(&descriptor);
            let agreement = agree(&*device, Wishes { rings, ..Wishes::default() })
                .map_err(MountError::Negotiation)?;
            Served::start(handler, config, agreement, transport, (&device, descriptor))
        };
        match serve() {
            Ok(served) => Ok(Handled { at: at.to_owned(), served }),
            Err(error) => {
                let _ = mounting::unmount(at);
                Err(error)
            }
        }
    }

    /// Waits until it is unmounted and every request is answered.
    pub fn wait(&self) {
        self.served.wait();
    }
}

impl<H: Handler> Drop for Handled<H> {
    fn drop(&mut self) {
        if !self.served.is_over()
            && let Err(error) = mounting::unmount(&self.at)
        {
            tracing::warn!(%error, path = %self.at.display(), "cannot unmount");
        }
    }
}
