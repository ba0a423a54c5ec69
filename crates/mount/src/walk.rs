//! A request that enters a volume: what it may wait for, and how long.
//!
//! Model. Entering may take long: the volume's server is away, or the volume was unmounted and its
//! last changes are not sent yet. The request waits as any call does: it can be interrupted, and
//! with limited patience it fails if that volume's server does not answer. A look-up of the mount
//! point is different, because the kernel has the directory above locked meanwhile. It waits for
//! [`LOCKED_MAX`], and the walk's next request, which locks nothing above, waits for the rest.

use std::sync::Arc;
use std::time::Duration;

use client::Cancel;
use rustix::io::Errno;
use types::{Fid, Name, VolumeId};
use venus::{RequestContext, Venus, Volumes};

use crate::errno;

/// How often a walk that waits looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a request waits that has the directory above the mount point locked.
pub(crate) const LOCKED_MAX: Duration = Duration::from_secs(1);

/// A request that enters a volume.
pub(crate) struct Walk<'a> {
    pub request: RequestContext<'a>,
    /// Is told which volume's server the request waits for.
    pub asks: &'a dyn Fn(&Arc<Venus>, Fid),
}

impl Walk<'_> {
    /// From now on it waits for the server of this volume.
    pub fn asks(&self, venus: &Arc<Venus>, volume: VolumeId) {
        (self.asks)(venus, Fid::root(volume));
    }

    /// Whether it may wait on.
    ///
    /// # Errors
    /// `INTR` if it was cancelled.
    pub fn go_on(&self) -> Result<(), Errno> {
        let is_cancelled = self.request.cancel.is_some_and(Cancel::is_cancelled);
        if is_cancelled { Err(Errno::INTR) } else { Ok(()) }
    }

    /// Runs with a walk that is cancelled after [`LOCKED_MAX`] at the latest.
    pub fn soon<R>(&self, run: impl FnOnce(&Walk<'_>) -> R) -> R {
        let soon = Cancel::within(LOCKED_MAX);
        let fires = soon.clone();
        let _also = self.request.cancel.map(|of| of.on_cancel(move || fires.cancel()));
        run(&Walk { request: RequestContext { cancel: Some(&soon), ..self.request }, ..*self })
    }

    /// Waits for the volume of this name, if it is closing: while its server is away, it is not
    /// found.
    ///
    /// # Errors
    /// `INTR`.
    pub fn waits_for_close_of(&self, volumes: &Volumes, name: &Name) -> Result<(), Errno> {
        while let Some(volume) = volumes.closing_named(name) {
            self.waits_for_close(volumes, volume)?;
        }
        Ok(())
    }

    /// Waits for a volume that is open already: while it closes, or for a moment. Returns whether
    /// it was closing.
    ///
    /// # Errors
    /// `INTR`.
    pub fn waits_for_close(&self, volumes: &Volumes, volume: VolumeId) -> Result<bool, Errno> {
        let Some(closing) = volumes.closing(volume) else {
            std::thread::sleep(LOOK_AGAIN);
            self.go_on()?;
            return Ok(false);
        };
        self.asks(&closing, volume);
        let closed = volumes.wait_for_close(volume, self.request.cancel);
        closed.map_err(|error| errno::of(&error))?;
        Ok(true)
    }
}
