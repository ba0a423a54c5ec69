//! A new volume whose content comes by AFS's protocol.
//!
//! Model: while its content comes a volume has a name that says so, `arriving.NUMBER`, and is out
//! of service. A server of AFS takes it into service when a dump has come, as the dump says, also
//! if the program that led it has ended; so only the name tells that it is not complete. It gets
//! its own name when it is, and serves after that.
//!
//! Steps: (1) the database announces the volume, and the group is claimed; (2) its server makes
//! it; (3) it is filled; (4) it gets its name, and serves; (5) the claim is removed. A leader that
//! finds the claim removes what is not complete, and begins anew.

use afs3::volumes::{RestoreCookie, VolumeReport, volume_flag, volume_type};
use types::{VolumeInfo, WhichVolume};

use super::places::{AfsPlace, PASSING};
use super::transactions::{AfsTransaction, NewAfsVolume, cookie};
use super::volume_server::VolumeServer;
use super::{number, partition};
use crate::claim::Claim;
use crate::{Job, NewVolume, VosError, examine};

/// Makes the volume of a place, out of service, to be filled.
///
/// # Errors
/// The server's.
pub(super) fn arriving<'s>(place: AfsPlace<'s>) -> Result<AfsTransaction<'s>, VosError> {
    let AfsPlace { at, partition, volume } = place;
    let (name, kind, parent) = (arriving_name(volume), volume_type::RW, volume);
    let new = NewAfsVolume { partition, name: &name, kind, parent, volume };
    let made = AfsTransaction::create(at, &new)?;
    made.set_flags(PASSING)?;
    Ok(made)
}

/// The name and the kind of an arriving volume, for the server that restores it.
pub(super) fn arriving_cookie(volume: u32) -> Result<RestoreCookie, VosError> {
    cookie(&arriving_name(volume), volume_type::RW, volume)
}

/// The volume of a transaction is complete, and out of service until it is told to serve.
///
/// # Errors
/// The server's.
pub(super) fn arrived(made: &AfsTransaction<'_>, name: &[u8]) -> Result<(), VosError> {
    made.set_flags(volume_flag::OUT_OF_SERVICE)?;
    made.rename(name)
}

/// Whether a volume, of which no transaction is open, is not complete or serves no one.
pub(super) fn is_arriving(there: &VolumeReport) -> bool {
    there.in_use == 0 || there.name.text() == arriving_name(there.volume)
}

/// The name of a volume that is not complete.
pub(super) fn arriving_name(volume: u32) -> Vec<u8> {
    format!("arriving.{volume}").into_bytes()
}

/// Fills the volume of a transaction. The number is that of the new volume.
pub(super) type Fill<'f> =
    dyn FnMut(&AfsTransaction<'_>, RestoreCookie, u32) -> Result<(), VosError> + 'f;

/// Steps 2 to 5, for an announced volume.
///
/// # Errors
/// Those of the servers and of the database, and of `fill`. After a refusal the announcement is
/// removed, if the server can be asked.
pub(super) fn make_filled(
    job: &Job<'_>,
    claim: Claim<'_, '_>,
    new: &NewVolume,
    fill: &mut Fill<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    match place(job, &claim, new) {
        Err(error) => {
            claim.forget()?;
            Err(error)
        }
        Ok(_) if job.dry_run => {
            for what in ["make the volume, out of service", "fill it", "serve it"] {
                job.step(format_args!("{}: {what}", job.servers.name(new.server)), || Ok(()))?;
            }
            claim.done("the volume is there", |_| {}).map(|_| None)
        }
        Ok(place) => match run(job, place, new, fill) {
            Ok(()) => {
                let id = claim.group.read_write;
                claim.done("the volume is there", |_| {})?;
                let there = examine(job.servers, new.server, WhichVolume::Id(id))?;
                Ok(there.and_then(|found| found.into_iter().next()))
            }
            Err(error) if error.is_refusal() => {
                match clean(place) {
                    Ok(_) => claim.forget()?,
                    Err(also) => job.note(format_args!("not all was undone: {also}")),
                }
                Err(error)
            }
            Err(error) => Err(error),
        },
    }
}

fn place<'a>(
    job: &Job<'a>,
    claim: &Claim<'_, '_>,
    new: &NewVolume,
) -> Result<AfsPlace<'a>, VosError> {
    let at = VolumeServer::of(job.servers, new.server)?;
    let partition = partition(job.servers, new.server, &new.partition)?;
    at.need_partition(partition)?;
    let volume = number(claim.group.read_write)?;
    cookie(new.name.as_bytes(), volume_type::RW, volume)?;
    Ok(AfsPlace { at, partition, volume })
}

/// Removes what an earlier attempt left; returns true if the volume is there and serves.
fn clean(place: AfsPlace<'_>) -> Result<bool, VosError> {
    let AfsPlace { at, partition, volume } = place;
    at.end_left(&[volume])?;
    match at.one(partition, volume)? {
        Some(there) if !is_arriving(&there) => Ok(true),
        Some(_) => place.remove().map(|()| false),
        None => Ok(false),
    }
}

fn run(
    job: &Job<'_>,
    place: AfsPlace<'_>,
    new: &NewVolume,
    fill: &mut Fill<'_>,
) -> Result<(), VosError> {
    let AfsPlace { at, volume, .. } = place;
    if clean(place)? {
        return Ok(());
    }
    let server = at.name();
    let what = format!("{server}: make the volume, out of service");
    let Some(made) = job.step(what, || arriving(place))? else { return Ok(()) };
    fill(&made, arriving_cookie(volume)?, volume)?;
    job.step(format_args!("{server}: serve it"), || {
        if new.quota_bytes != 0 {
            made.set_quota(new.quota_bytes)?;
        }
        arrived(&made, new.name.as_bytes())?;
        made.set_flags(0)?;
        made.end()
    })?;
    Ok(())
}
