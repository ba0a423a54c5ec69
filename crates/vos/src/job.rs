//! One operation that is led: for whom, whether it is done or only said, and who is told of it.

use std::fmt::Display;

use types::{Answer, Busy, ServerId, VolumeCall, VolumeInfo};

use crate::{Servers, VosError};

/// Who leads operations.
pub struct JobLeader<'a> {
    /// For people, and to find out whether the leader of a claim is gone.
    pub by: String,
    /// Seconds since 1970.
    pub now_secs: &'a dyn Fn() -> i64,
    /// Whether the leader of this claim is gone for certain.
    pub is_over: &'a dyn Fn(&Busy) -> bool,
}

/// What the caller hears while an operation goes on.
#[derive(Clone, Copy, Debug)]
pub enum JobEvent<'t> {
    /// A step comes, or would be done.
    Step(&'t str),
    /// Something to know that is no step.
    Note(&'t str),
    /// How far a server is that fetches.
    Progress {
        /// What it is called.
        server: &'t str,
        /// What came by now.
        bytes: u64,
        /// All of the volume, of which only a part may be needed; 0: not known.
        total_bytes: u64,
    },
}

/// See the head of the file.
pub struct Job<'a> {
    /// Whom it asks.
    pub servers: &'a dyn Servers,
    /// Who leads it.
    pub who: JobLeader<'a>,
    /// Nothing is changed; the steps are told as if they had been done.
    pub dry_run: bool,
    /// Who hears of it.
    pub tell: &'a (dyn Fn(JobEvent<'_>) + Sync),
}

impl Job<'_> {
    /// One step; `None` if it is only said.
    pub(crate) fn step<T>(
        &self,
        what: impl Display,
        act: impl FnOnce() -> Result<T, VosError>,
    ) -> Result<Option<T>, VosError> {
        (self.tell)(JobEvent::Step(&what.to_string()));
        if self.dry_run { Ok(None) } else { act().map(Some) }
    }

    /// A step that was done beside others.
    pub(crate) fn done(&self, what: impl Display) {
        (self.tell)(JobEvent::Step(&what.to_string()));
    }

    /// How far it is.
    pub(crate) fn progress(&self, server: &str, bytes: u64, total_bytes: u64) {
        (self.tell)(JobEvent::Progress { server, bytes, total_bytes });
    }

    pub(crate) fn note(&self, what: impl Display) {
        (self.tell)(JobEvent::Note(&what.to_string()));
    }

    /// A step that one server does.
    pub(crate) fn call(
        &self,
        what: impl Display,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<Answer>, VosError> {
        let name = self.servers.name(server);
        self.step(format_args!("{name}: {what}"), || self.servers.call(server, call))
    }

    /// As [`Job::call`], of calls that answer with a volume.
    pub(crate) fn call_one(
        &self,
        what: impl Display,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<VolumeInfo>, VosError> {
        match self.call(what, server, call)? {
            None => Ok(None),
            Some(Answer::Volumes { volumes, .. }) if !volumes.is_empty() => {
                Ok(volumes.into_iter().next())
            }
            Some(_) => Err(VosError::Odd(self.servers.name(server))),
        }
    }
}
