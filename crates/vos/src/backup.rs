//! The backup volume.

use types::{
    Name, Revised, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::claim::Claim;
use crate::find::of_kind;
use crate::{Job, VosError, examine};

/// Makes or renews the backup volume; `None` in a dry run.
///
/// # Errors
/// `Busy`; `Unfit` for a group without a read-write volume; errors of the server and of the
/// database.
pub fn backup(job: &Job<'_>, group: Revised<VolumeGroup>) -> Result<Option<VolumeInfo>, VosError> {
    let Some(server) = group.record.read_write_site().map(|site| site.server) else {
        return Err(VosError::Unfit("it has no read-write volume".to_owned()));
    };
    let (id, known) = (group.record.read_write, group.record.backup);
    let name = Name::new(&[group.record.name.as_bytes(), b".backup"].concat())
        .map_err(|_| VosError::Unfit("its name is too long for a backup volume's".to_owned()))?;
    let number = match known {
        Some(number) => Some(number),
        None => {
            let here = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
            let there = of_kind(&here, VolumeKind::Backup).map(|volume| volume.id);
            let take = || Ok(job.servers.db().take_numbers(VolumeId(0), 1)?);
            there.map_or_else(
                || job.step("database: take a number", take),
                |number| Ok(Some(number)),
            )?
        }
    };
    let mut claim = Claim::of(job, group, "backup")?;
    if known.is_none() {
        claim.change("the number of the backup volume", |group| {
            group.backup = Some(number.unwrap_or(VolumeId(0)));
        })?;
    }
    let call =
        VolumeCall::Clone { id: number, of: id, name, kind: VolumeKind::Backup, replace: true };
    match job.call_one("seal its current state", server, call) {
        Ok(made) => claim.done("there is a backup volume", |_| {}).map(|_| made),
        Err(error) if error.is_refusal() => {
            claim.group.backup = known;
            Err(claim.give_up(error))
        }
        Err(error) => Err(error),
    }
}
