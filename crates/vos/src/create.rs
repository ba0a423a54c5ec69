//! A new volume.
//!
//! Steps: the database announces the volume with its number and claims it; the server makes it; the
//! claim is removed. A leader that finds the claim reads the number from it, and asks the server
//! whether the second step was done.

use std::fmt::Display;

use types::{
    Name, ServerId, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, WhichVolume,
};

use crate::claim::{Claim, need_free};
use crate::{Job, VosError, examine, partition_no};

const OPERATION: &str = "create";

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// The name of its group.
    pub name: Name,
    /// Its number; `None`: the database chooses one.
    pub id: Option<VolumeId>,
    /// The server that will have it.
    pub server: ServerId,
    /// The partition, as the server names it.
    pub partition: String,
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// User and group of its root directory.
    pub owner: (u32, u32),
    /// Whether its bodies are encrypted on the disk; `None`: the server's default.
    pub encrypt: Option<bool>,
}

/// Makes the volume; `None` in a dry run.
///
/// # Errors
/// `Busy`; `Taken` if the database has a volume of that name; the server's error, after which the
/// announcement is removed unless the server cannot be asked.
pub fn create(job: &Job<'_>, new: &NewVolume) -> Result<Option<VolumeInfo>, VosError> {
    let no = partition_no(job.servers, new.server, &new.partition)?;
    let claim = announced(job, new, OPERATION)?;
    let id = claim.group.read_write;
    let call = VolumeCall::Create {
        id: Some(id),
        partition: Some(no),
        name: new.name.clone(),
        quota_bytes: new.quota_bytes,
        quota_files: 0,
        owner: new.owner,
        encrypt: new.encrypt,
    };
    made(job, claim, new.server, format_args!("make the volume {}", id.0), call)
}

/// The other steps: the server makes the announced volume if it does not have it, and the claim is
/// removed.
pub(crate) fn made(
    job: &Job<'_>,
    claim: Claim<'_, '_>,
    server: ServerId,
    what: impl Display,
    call: VolumeCall,
) -> Result<Option<VolumeInfo>, VosError> {
    let there = || -> Result<Option<VolumeInfo>, VosError> {
        let found = examine(job.servers, server, WhichVolume::Id(claim.group.read_write))?;
        Ok(found.and_then(|volumes| volumes.into_iter().next()))
    };
    let known = if job.dry_run { None } else { there()? };
    let made = match known {
        Some(made) => Some(made),
        None => match job.call_one(what, server, call) {
            Ok(made) => made,
            // A session repeats the call to a server that ended before it answered; the second
            // attempt may be refused because the first one made the volume.
            Err(error) if error.is_refusal() => match there()? {
                Some(made) => Some(made),
                None => {
                    claim.forget()?;
                    return Err(error);
                }
            },
            Err(error) => return Err(error),
        },
    };
    claim.done("the volume is there", |_| {})?;
    Ok(made)
}

/// The first step: the number is taken and the database records it. An operation that finds the
/// record continues from it.
pub(crate) fn announced<'j, 'a>(
    job: &'j Job<'a>,
    new: &NewVolume,
    operation: &str,
) -> Result<Claim<'j, 'a>, VosError> {
    let db = job.servers.db();
    let site = site(new);
    if let Some(seen) = db.group_named(&new.name)? {
        need_free(job, &seen.record, Some(operation))?;
        let same = seen.record.busy.is_some() && seen.record.read_write_site() == Some(&site);
        if same && new.id.is_none_or(|id| id == seen.record.read_write) {
            return Claim::of(job, seen, operation);
        }
        let why = "there is a volume of that name".to_owned();
        return Err(VosError::Unfit(if seen.record.busy.is_some() {
            format!("{why}, which was not finished elsewhere")
        } else {
            why
        }));
    }
    let id = match new.id {
        Some(id) => Some(id),
        None => job.step("database: take a number", || Ok(db.take_numbers(VolumeId(0), 1)?))?,
    };
    let group = VolumeGroup::new(new.name.clone(), id.unwrap_or(VolumeId(0)), site);
    job.step("database: announce the volume", || Ok(()))?;
    Claim::of_new(job, group, operation)
}

/// Where it is to be.
pub(crate) fn site(new: &NewVolume) -> Site {
    Site {
        server: new.server,
        partition: new.partition.clone(),
        kind: SiteKind::ReadWrite,
        epoch: 0,
    }
}
