//! A group that one operation has to itself.

use celldb::CellError;
use types::{Busy, Revised, Revision, VolumeGroup};

use crate::{Job, VosError};

/// A claimed group, as the database has it. Dropped without [`Claim::done`] it stays claimed: the
/// operation was cut off.
pub(crate) struct Claim<'j, 'a> {
    job: &'j Job<'a>,
    pub group: VolumeGroup,
    revision: Revision,
}

impl<'j, 'a> Claim<'j, 'a> {
    /// Claims a group for `operation`, or goes on with the same one of somebody who is gone.
    ///
    /// # Errors
    /// `Busy`; the database's.
    pub fn of(
        job: &'j Job<'a>,
        seen: Revised<VolumeGroup>,
        operation: &str,
    ) -> Result<Self, VosError> {
        need_free(job, &seen.record, Some(operation))?;
        if seen.record.busy.is_some() {
            job.note("going on with what was begun before");
        }
        let mut claim = Claim { job, group: seen.record, revision: seen.revision };
        let busy = busy(job, operation);
        claim.write(&mut |group| group.busy = Some(busy.clone()))?;
        Ok(claim)
    }

    /// A new group, which is claimed from the beginning.
    ///
    /// # Errors
    /// `Taken`, if there is one with its name; the database's.
    pub fn of_new(
        job: &'j Job<'a>,
        mut group: VolumeGroup,
        operation: &str,
    ) -> Result<Self, VosError> {
        group.busy = Some(busy(job, operation));
        let mut claim = Claim { job, group, revision: Revision(0) };
        claim.write(&mut |_| {})?;
        Ok(claim)
    }

    /// A step in the database.
    pub fn change(
        &mut self,
        what: &str,
        change: impl Fn(&mut VolumeGroup),
    ) -> Result<(), VosError> {
        if self.job.step(format_args!("database: {what}"), || Ok(()))?.is_none() {
            change(&mut self.group);
            return Ok(());
        }
        self.write(&mut |group| change(group))
    }

    /// The last step in the database: a change, and the claim goes.
    pub fn done(
        mut self,
        what: &str,
        change: impl Fn(&mut VolumeGroup),
    ) -> Result<VolumeGroup, VosError> {
        self.change(what, |group| {
            change(group);
            group.busy = None;
        })?;
        Ok(self.group)
    }

    /// The last step: nobody knows the group any more.
    pub fn forget(self) -> Result<(), VosError> {
        let Claim { job, group, revision } = self;
        let db = job.servers.db();
        job.step("database: the group is forgotten", || {
            match db.remove_group(group.read_write, revision) {
                Err(CellError::Conflict { found: Revision(0), .. }) => Ok(()),
                removed => Ok(removed.map(drop)?),
            }
        })?;
        Ok(())
    }

    /// Nothing was done: the claim goes, and `error` says why. What fails now is found as a claim
    /// of somebody who is gone.
    pub fn give_up(self, error: VosError) -> VosError {
        if let Err(also) = self.done("nothing was done", |_| {}) {
            tracing::debug!(%also, "a claim stays");
        }
        error
    }

    /// A step in the database that must not be done if anybody wrote the record since it was read,
    /// even if it says the same.
    pub fn switch(
        &mut self,
        what: &str,
        change: impl Fn(&mut VolumeGroup),
    ) -> Result<(), VosError> {
        self.job.step(format_args!("database: {what}"), || Ok(()))?;
        self.write_from(&mut |group| change(group), false)
    }

    /// A change from what was read last. If somebody else was quicker, the claim was taken away.
    fn write(&mut self, change: &mut dyn FnMut(&mut VolumeGroup)) -> Result<(), VosError> {
        self.write_from(change, true)
    }

    /// `follows`: the same record at another revision will do: a server wrote it that had to
    /// (`docs/spec/volumes.md`, *Move*).
    fn write_from(
        &mut self,
        change: &mut dyn FnMut(&mut VolumeGroup),
        follows: bool,
    ) -> Result<(), VosError> {
        let before = self.group.clone();
        change(&mut self.group);
        if self.job.dry_run {
            return Ok(());
        }
        let written = self.put(&before, follows);
        if written.is_err() {
            self.group = before;
        }
        written
    }

    fn put(&mut self, before: &VolumeGroup, follows: bool) -> Result<(), VosError> {
        let db = self.job.servers.db();
        loop {
            let error = match db.put_group(&self.group, self.revision) {
                Ok(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                Err(error @ CellError::Conflict { .. }) => error,
                Err(error) => return Err(error.into()),
            };
            match db.group_of(self.group.read_write)? {
                // Ours, if the answer of an earlier attempt was lost below us.
                Some(seen) if seen.record == self.group => {
                    self.revision = seen.revision;
                    return Ok(());
                }
                Some(seen) if follows && seen.record == *before => self.revision = seen.revision,
                Some(Revised { record: VolumeGroup { name, busy: Some(busy), .. }, .. }) => {
                    return Err(VosError::Busy { name, busy });
                }
                _ => return Err(error.into()),
            }
        }
    }
}

fn busy(job: &Job<'_>, operation: &str) -> Busy {
    let cut = |text: &str| {
        let end = (0..=text.len().min(types::limits::BUSY_BYTES_MAX))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text[..end.unwrap_or(0)].to_owned()
    };
    Busy { operation: cut(operation), by: cut(&job.who.by), since_secs: (job.who.now_secs)() }
}

/// Nobody is at work on it, or somebody was at the same operation and is gone.
///
/// # Errors
/// `Busy`.
pub(crate) fn need_free(
    job: &Job<'_>,
    group: &VolumeGroup,
    operation: Option<&str>,
) -> Result<(), VosError> {
    match &group.busy {
        None => Ok(()),
        Some(busy) if Some(busy.operation.as_str()) == operation && (job.who.is_over)(busy) => {
            Ok(())
        }
        Some(busy) => Err(VosError::Busy { name: group.name.clone(), busy: busy.clone() }),
    }
}
