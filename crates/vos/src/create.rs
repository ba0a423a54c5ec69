//! A new volume.
//!
//! Steps: announced in the database with its number, and claimed; made at the server; the claim
//! goes. Whoever finds the claim knows the number, and sees at the server whether the second step
//! was done.

use std::fmt::Display;

use types::{
    Name, ServerId, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, WhichVolume,
};

use crate::claim::{Claim, need_free};
use crate::{Job, VosError, examine, partition_no};

const OPERATION: &str = "create";

/// What a new volume is to be.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name.
    pub name: Name,
    /// Its number; `None`: one that the database gives.
    pub id: Option<VolumeId>,
    /// Where.
    pub server: ServerId,
    /// The partition, as the server names it.
    pub partition: String,
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// User and group of its root directory.
    pub owner: (u32, u32),
    /// Whether what its files hold is encrypted on the disk; `None`: as the server does it.
    pub encrypt: Option<bool>,
}

/// Makes it; `None` if that was only said.
///
/// # Errors
/// `Busy`; `Taken` of the database if there is one so called; the server's, after which nothing is
/// left of it but where the server cannot be asked.
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

/// The other steps: the server makes the volume that was announced, unless it did, and the claim
/// goes.
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
            // A server that died before it answered is asked again, and may refuse for what it has
            // done itself.
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

/// The first step: the number is taken, and the database knows of it. Who finds it done goes on
/// with that.
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
