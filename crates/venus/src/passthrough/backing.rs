//! Passthrough: files whose bytes the kernel reads and writes itself (docs/spec/passthrough.md).
//!
//! The first open of a file chooses its mode and the last close ends it (PT-1); a thread that opens
//! or closes holds the file's `choice` meanwhile, over calls to the server too. No other code takes
//! it; breaks never do.

use std::sync::Arc;

use super::{CacheBodies, Loans, Preallocated};
use crate::base::{Backing, Error, OpenMode, RequestContext};
use crate::data::{FileBytes, PassedFile};
use crate::reading::Directories;
use crate::session::Ground;

/// Chooses the body that a file's handles use.
pub(crate) struct Passthrough {
    ground: Ground,
    directories: Arc<Directories>,
    loans: Arc<Loans>,
    preallocated: Arc<Preallocated>,
    cache_bodies: Arc<CacheBodies>,
}

impl Passthrough {
    pub fn new(
        ground: &Ground,
        directories: &Arc<Directories>,
        loans: &Arc<Loans>,
        preallocated: &Arc<Preallocated>,
        cache_bodies: &Arc<CacheBodies>,
    ) -> Self {
        Passthrough {
            ground: ground.clone(),
            directories: Arc::clone(directories),
            loans: Arc::clone(loans),
            preallocated: Arc::clone(preallocated),
            cache_bodies: Arc::clone(cache_bodies),
        }
    }

    /// Whether a successor goes on with what the kernel has: then that is bodies of the server.
    fn is_kept(&self) -> bool {
        self.ground.config.keeper.is_some()
    }

    /// A handle of a predecessor.
    pub fn inherit(&self, file: &FileBytes, mode: OpenMode, backing: Option<Backing>) {
        let mut choice = file.choice.lock();
        choice.used = true;
        choice.users += 1;
        choice.writers += u32::from(mode.write);
        if let Some(backing) = backing {
            self.loans.inherit(file, backing, choice.writers > 0);
        }
    }

    /// Counts one more handle of the file, which `made` it or found it; returns the backing file
    /// that it must use, if any.
    ///
    /// # Errors
    /// [`Error::Interrupted`], the service's refusal, or a failed disk.
    pub fn select_backing(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
        made: bool,
    ) -> Result<Option<Backing>, Error> {
        let mut choice = file.choice.lock();
        let passed = file.data.lock().passed.clone();
        let before = passed.as_ref().map(|passed| passed.backing);
        let passed = match passed {
            None if choice.users > 0 => None,
            None if made && self.ground.server.is_local() && !self.is_kept() => {
                self.preallocated.begin_blank(file, mode)
            }
            None if self.ground.server.is_local() => self.loans.pass(request, file, mode),
            None if self.is_kept() => None,
            None => self.cache_bodies.pin(request, file, mode)?,
            Some(PassedFile { pinned: Some(pinned), backing, .. }) => {
                self.cache_bodies.join_pinned(request, &pinned, mode)?;
                choice.users += 1;
                choice.writers += u32::from(mode.write);
                return Ok(Some(backing));
            }
            Some(passed) if passed.blank.is_some() => {
                let passed =
                    self.preallocated.join_blank(request, file, mode, choice.is_unused())?;
                passed.map_or(Ok(None), |passed| {
                    self.loans.join_for(request, file, passed, mode).map(Some)
                })?
            }
            Some(passed) => Some(self.loans.join_for(request, file, passed, mode)?),
        };
        if mode.write && passed.as_ref().is_some_and(|passed| passed.blank.is_some()) {
            file.data.lock().writer = Some(request.caller.clone());
        }
        if passed.is_none() && !made && !mode.write && !choice.used {
            self.directories.fill_from_prefetch(request.caller, file.fid);
        }
        debug_assert!(
            choice.is_unused() || before == passed.as_ref().map(|passed| passed.backing),
            "PT-1: while a file is open its backing file stays"
        );
        choice.used = true;
        choice.users += 1;
        choice.writers += u32::from(mode.write);
        Ok(passed.map(|passed| passed.backing))
    }

    /// Counts one handle less.
    pub fn release_backing(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
    ) {
        let mut choice = file.choice.lock();
        assert!(choice.users > 0, "PT-1: a handle that is closed was counted");
        choice.users -= 1;
        choice.writers -= u32::from(mode.write);
        debug_assert!(choice.writers <= choice.users, "PT-1: each writer is a handle");
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.blank.is_some() && (choice.users > 0 || self.preallocated.rest_blank(file)) {
            return;
        }
        // Read anew: the preallocated body may have been adopted a moment ago.
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.loaned.is_some() && choice.writers == 0 {
            self.loans.return_body(request, file);
        }
        if let Some(pinned) = &passed.pinned {
            if choice.users == 0 {
                self.cache_bodies.unpin_or_linger(file, pinned);
            }
            return;
        }
        if choice.users == 0 {
            self.loans.end_pass(file);
        }
    }
}
