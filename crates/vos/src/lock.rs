//! An administrator's lock on a group, and the removal of any claim.

use types::{Revised, VolumeGroup};

use crate::claim::Claim;
use crate::{Job, VosError};

/// Refuses all operations on the group until it is unlocked.
///
/// # Errors
/// `Busy`; the database's error.
pub fn lock(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<(), VosError> {
    if let Some(busy) = group.record.busy {
        return Err(VosError::Busy { name: group.record.name, busy });
    }
    job.step("database: lock the group", || Ok(()))?;
    Claim::of(job, group, "lock").map(drop)
}

/// Removes a lock or any other claim; returns true if there was one. An interrupted operation's
/// volumes stay as they are.
///
/// # Errors
/// The database's error.
pub fn unlock(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<bool, VosError> {
    let Revised { mut record, revision } = group;
    let Some(busy) = record.busy.take() else { return Ok(false) };
    let what = format!("database: unlock the group ({}, by {})", busy.operation, busy.by);
    job.step(what, || Ok(job.servers.db().put_group(&record, revision)?))?;
    Ok(true)
}
