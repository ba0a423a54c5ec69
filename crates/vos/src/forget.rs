//! Removes the record of a group from the database. Its volumes stay at their servers, and
//! [`crate::sync_database`] enters them again.

use types::{Revised, VolumeGroup};

use crate::claim::need_free;
use crate::{Job, VosError};

/// Removes the record.
///
/// # Errors
/// `Busy` if an operation has claimed the group: its record is what finishes it. The database's
/// error, such as a conflict with another writer.
pub fn forget(job: &Job<'_>, group: &Revised<VolumeGroup>) -> Result<(), VosError> {
    need_free(job, &group.record, None)?;
    let name = String::from_utf8_lossy(group.record.name.as_bytes()).into_owned();
    let (id, db) = (group.record.read_write, job.servers.db());
    job.step(format_args!("database: forget {name}"), || Ok(db.remove_group(id, group.revision)?))?;
    Ok(())
}
