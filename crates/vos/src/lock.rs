//! A group that an administrator keeps others from, and the end of any claim.

use types::{Revised, VolumeGroup};

use crate::claim::Claim;
use crate::{Job, VosError};

/// Nobody works on the group until it is unlocked.
///
/// # Errors
/// `Busy`; the database's.
pub fn lock(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<(), VosError> {
    if let Some(busy) = group.record.busy {
        return Err(VosError::Busy { name: group.record.name, busy });
    }
    job.step("database: lock the group", || Ok(()))?;
    Claim::of(job, group, "lock").map(drop)
}

/// Takes a lock or any other claim off; whether there was one. What its owner left is as it is.
///
/// # Errors
/// The database's.
pub fn unlock(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<bool, VosError> {
    let Revised { mut record, revision } = group;
    let Some(busy) = record.busy.take() else { return Ok(false) };
    let what = format!("database: unlock the group ({}, by {})", busy.operation, busy.by);
    job.step(what, || Ok(job.servers.db().put_group(&record, revision)?))?;
    Ok(true)
}
