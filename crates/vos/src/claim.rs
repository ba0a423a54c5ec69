//! A group that one operation has claimed.

use celldb::CellError;
use types::{Busy, Revised, Revision, Site, SiteKind, VolumeGroup};

use crate::{Job, VosError};

/// A claimed group, as the database has it. Dropped without [`Claim::done`] it stays claimed: the
/// operation was interrupted.
pub(crate) struct Claim<'j, 'a> {
    job: &'j Job<'a>,
    pub group: VolumeGroup,
    revision: Revision,
}

impl<'j, 'a> Claim<'j, 'a> {
    /// Claims a group for `operation`, or takes over the claim of the same operation if its leader
    /// ended.
    ///
    /// # Errors
    /// `Busy`; the database's error.
    pub fn of(
        job: &'j Job<'a>,
        seen: Revised<VolumeGroup>,
        operation: &str,
    ) -> Result<Self, VosError> {
        need_free(job, &seen.record, Some(operation))?;
        if seen.record.busy.is_some() {
            job.note("continuing an interrupted operation");
        }
        let mut claim = Claim { job, group: seen.record, revision: seen.revision };
        let busy = busy(job, operation);
        claim.write(&mut |group| group.busy = Some(busy.clone()))?;
        Ok(claim)
    }

    /// Records a new group that is claimed from the beginning.
    ///
    /// # Errors
    /// `Taken` if a group has its name; the database's error.
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

    /// Does a step in the database.
    ///
    /// # Errors
    /// `Busy` if another leader took the claim; the database's error.
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

    /// The last step in the database: applies a change and removes the claim.
    ///
    /// # Errors
    /// `Busy` if another leader took the claim; the database's error.
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

    /// The last step: removes the group from the database.
    ///
    /// # Errors
    /// The database's error, such as a conflict with another writer.
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

    /// Removes the claim of an operation that did nothing, and returns `error`. If this fails, the
    /// claim stays as that of a leader that ended.
    pub fn give_up(self, error: VosError) -> VosError {
        if let Err(also) = self.done("nothing was done", |_| {}) {
            tracing::debug!(%also, "an operation failed and its claim stays: repeat it");
        }
        error
    }

    /// A step in the database that fails if any other writer changed the record since it was read,
    /// even to the same content.
    ///
    /// # Errors
    /// `Busy` or a conflict if the record changed since it was read; the database's error.
    pub fn switch(
        &mut self,
        what: &str,
        change: impl Fn(&mut VolumeGroup),
    ) -> Result<(), VosError> {
        assert!(self.group.busy.is_some(), "VO-6: the site changes under a claim alone");
        self.job.step(format_args!("database: {what}"), || Ok(()))?;
        self.write_from(&mut |group| change(group), false)
    }

    /// Changes the record that was read last. A write by another leader means that this claim was
    /// removed.
    fn write(&mut self, change: &mut dyn FnMut(&mut VolumeGroup)) -> Result<(), VosError> {
        self.write_from(change, true)
    }

    /// `follows`: accepts the same record at another revision, which a server wrote during a move
    /// (`docs/spec/volumes.md`, *Move*), and one in which a standby got into step or fell out.
    fn write_from(
        &mut self,
        change: &mut dyn FnMut(&mut VolumeGroup),
        follows: bool,
    ) -> Result<(), VosError> {
        let before = self.group.clone();
        change(&mut self.group);
        assert_eq!(self.group.read_write, before.read_write, "VO-2: a group keeps its number");
        let written_at = self.group.sites.iter().filter(|site| site.kind == SiteKind::ReadWrite);
        assert!(written_at.count() <= 1, "VO-6: one site takes changes");
        assert!(
            self.group.backup.is_none_or(|backup| Some(backup) != self.group.read_only),
            "VO-2: two volumes of a group have two numbers"
        );
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
        let mut before = before.clone();
        loop {
            let error = match db.put_group(&self.group, self.revision) {
                Ok(revision) => {
                    debug_assert!(revision > self.revision, "AC-12: a write has a later revision");
                    self.revision = revision;
                    return Ok(());
                }
                Err(error @ CellError::Conflict { .. }) => error,
                Err(error) => return Err(error.into()),
            };
            match db.group_of(self.group.read_write)? {
                // This operation's own write, if the transport lost the answer of an earlier
                // attempt.
                Some(seen) if seen.record == self.group => {
                    self.revision = seen.revision;
                    return Ok(());
                }
                Some(seen) if follows && is_same_but_steps(&seen.record, &before) => {
                    take_steps(&mut self.group, &before, &seen.record);
                    (self.revision, before) = (seen.revision, seen.record);
                }
                Some(Revised { record: VolumeGroup { name, busy: Some(busy), .. }, .. }) => {
                    return Err(VosError::Busy { name, busy });
                }
                _ => return Err(error.into()),
            }
        }
    }
}

/// Whether two records differ at most in which standbys are in step.
fn is_same_but_steps(one: &VolumeGroup, other: &VolumeGroup) -> bool {
    let flat = |group: &VolumeGroup| {
        let mut group = group.clone();
        group
            .sites
            .iter_mut()
            .filter(|site| site.kind.is_standby())
            .for_each(|site| site.epoch = 0);
        group
    };
    one == other || flat(one) == flat(other)
}

/// Standbys are in step in `group` as `now` says, unless the change of `before` to `group` was
/// about that.
fn take_steps(group: &mut VolumeGroup, before: &VolumeGroup, now: &VolumeGroup) {
    let of = |group: &VolumeGroup, site: &Site| {
        let is_it = |one: &&Site| (one.server, one.kind) == (site.server, site.kind);
        group.sites.iter().find(is_it).map(|one| one.epoch)
    };
    for site in group.sites.iter_mut().filter(|site| site.kind.is_standby()) {
        if of(before, site) == Some(site.epoch) {
            site.epoch = of(now, site).unwrap_or(site.epoch);
        }
    }
}

/// As much of a text as the record of a claim holds.
fn cut(text: &str) -> &str {
    let ends = (0..=text.len().min(types::limits::BUSY_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Whether this operation has claimed the group, or one of which the record shows the same.
pub(crate) fn is_claimed_for(group: &VolumeGroup, operation: &str) -> bool {
    group.busy.as_ref().is_some_and(|busy| busy.operation == cut(operation))
}

fn busy(job: &Job<'_>, operation: &str) -> Busy {
    let (operation, by) = (cut(operation).to_owned(), cut(&job.who.by).to_owned());
    Busy { operation, by, since_secs: (job.who.now_secs)() }
}

/// Checks that the group has no claim, or one of the same operation whose leader ended.
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
        Some(busy)
            if Some(busy.operation.as_str()) == operation.map(cut) && (job.who.is_over)(busy) =>
        {
            Ok(())
        }
        Some(busy) => Err(VosError::Busy { name: group.name.clone(), busy: busy.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use types::{Name, ServerId, VolumeId};

    use super::*;

    #[test]
    fn an_operation_with_a_long_text_finds_its_claim() {
        let operation = format!("move to 7 {}", "\u{e4}".repeat(types::limits::BUSY_BYTES_MAX));
        let site = Site {
            server: ServerId(7),
            partition: String::new(),
            kind: SiteKind::ReadWrite,
            epoch: 0,
        };
        let mut group = VolumeGroup::new(Name::new(b"v").unwrap(), VolumeId(1), site);
        assert!(!is_claimed_for(&group, &operation));
        let (operation_stored, by) = (cut(&operation).to_owned(), String::new());
        group.busy = Some(Busy { operation: operation_stored, by, since_secs: 0 });
        assert!(is_claimed_for(&group, &operation));
        assert!(!is_claimed_for(&group, "move to 7"));
    }
}
