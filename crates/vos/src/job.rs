//! One run of an operation: its leader, whether it is a dry run, and the receiver of its events.

use std::fmt::Display;

use types::{
    Answer, Busy, Fault, ServerId, VolumeCall, VolumeId, VolumeInfo, VolumeState, WhichVolume,
};

use crate::{Servers, VosError, examine};

/// The process that leads operations.
pub struct JobLeader<'a> {
    /// Names the leader for people, and lets others find out whether the leader of a claim ended.
    pub by: String,
    /// Seconds since 1970.
    pub now_secs: &'a dyn Fn() -> i64,
    /// Returns true if the leader of this claim has certainly ended.
    pub is_over: &'a dyn Fn(&Busy) -> bool,
}

/// Events of an operation for the caller.
#[derive(Clone, Copy, Debug)]
pub enum JobEvent<'t> {
    /// A step begins, or would be done in a dry run.
    Step(&'t str),
    /// Information that is no step.
    Note(&'t str),
    /// Progress of a server that fetches.
    Progress {
        /// The server's name.
        server: &'t str,
        /// Bytes received so far.
        bytes: u64,
        /// Size of the whole volume, of which only a part may be needed; 0: unknown.
        total_bytes: u64,
    },
    /// How far a standby is.
    Behind {
        /// Its server's name.
        server: &'t str,
        /// Changes that it has not applied.
        changes: u64,
        /// Their bytes.
        bytes: u64,
    },
}

/// See the head of the file.
pub struct Job<'a> {
    /// The servers and the database that it calls.
    pub servers: &'a dyn Servers,
    /// The leader of the operation.
    pub who: JobLeader<'a>,
    /// Changes nothing; steps are reported as if they had been done.
    pub dry_run: bool,
    /// Receives the events.
    pub tell: &'a (dyn Fn(JobEvent<'_>) + Sync),
}

impl Job<'_> {
    /// Does one step; `None` in a dry run.
    pub(crate) fn step<T>(
        &self,
        what: impl Display,
        act: impl FnOnce() -> Result<T, VosError>,
    ) -> Result<Option<T>, VosError> {
        (self.tell)(JobEvent::Step(&what.to_string()));
        if self.dry_run { Ok(None) } else { act().map(Some) }
    }

    /// Reports a step that was done concurrently with others.
    pub(crate) fn done(&self, what: impl Display) {
        (self.tell)(JobEvent::Step(&what.to_string()));
    }

    /// Reports the progress of a server.
    pub(crate) fn progress(&self, server: &str, bytes: u64, total_bytes: u64) {
        (self.tell)(JobEvent::Progress { server, bytes, total_bytes });
    }

    pub(crate) fn note(&self, what: impl Display) {
        (self.tell)(JobEvent::Note(&what.to_string()));
    }

    /// Does a step that is one call to a server.
    pub(crate) fn call(
        &self,
        what: impl Display,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<Answer>, VosError> {
        let name = self.servers.name(server);
        self.step(format_args!("{name}: {what}"), || self.servers.call(server, call))
    }

    /// As [`Job::call`], for calls that return a volume.
    pub(crate) fn call_one(
        &self,
        what: impl Display,
        server: ServerId,
        call: VolumeCall,
    ) -> Result<Option<VolumeInfo>, VosError> {
        let source = match &call {
            VolumeCall::Clone { of, .. } => Some(*of),
            _ => None,
        };
        let answer = self.call(what, server, call).map_err(|error| match source {
            Some(source) if is_half_restored(self.servers, server, source, &error) => {
                VosError::HalfRestored
            }
            _ => error,
        })?;
        match answer {
            None => Ok(None),
            Some(Answer::Volumes { volumes, .. }) if !volumes.is_empty() => {
                Ok(volumes.into_iter().next())
            }
            Some(_) => Err(VosError::Odd(self.servers.name(server))),
        }
    }
}

/// Whether a server refused because a restore over the volume stopped before its end.
pub(crate) fn is_half_restored(
    servers: &dyn Servers,
    server: ServerId,
    volume: VolumeId,
    refusal: &VosError,
) -> bool {
    refusal.fault() == Some(Fault::Busy)
        && examine(servers, server, WhichVolume::Id(volume))
            .ok()
            .flatten()
            .and_then(|volumes| volumes.into_iter().next())
            .is_some_and(|volume| volume.state == VolumeState::Restoring)
}
