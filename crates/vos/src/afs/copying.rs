//! A new volume that begins as a copy of another, where one of both servers is of AFS.
//!
//! The source makes a clone and sends it to the new volume (`making`).

use afs3::volumes::volume_type;
use types::{Revised, Site, VolumeGroup, VolumeInfo};

use super::making::make_filled;
use super::places::AfsPlace;
use super::volume_server::VolumeServer;
use super::{number, partition};
use crate::create::announced;
use crate::{Job, NewVolume, VosError};

/// Copies the volume; `None` in a dry run.
///
/// # Errors
/// As [`crate::copy`].
pub(crate) fn copy(
    job: &Job<'_>,
    of: &Revised<VolumeGroup>,
    from: &Site,
    new: &NewVolume,
) -> Result<Option<VolumeInfo>, VosError> {
    let at = VolumeServer::of(job.servers, from.server)?;
    let volume = number(of.record.read_write)?;
    let partition = partition(job.servers, from.server, &from.partition)?;
    let source = AfsPlace { at, partition, volume };
    at.need_partition(source.partition)?;
    let claim = announced(job, new, "copy")?;
    make_filled(job, claim, new, &mut |made, cookie, copied| {
        let name = format!("copying.{copied}").into_bytes();
        source.remove_clone(job, &name, true)?;
        source.with_clone(job, &name, volume_type::RO, |clone, _| {
            let (from, to) = (at.name(), job.servers.name(new.server));
            job.step(format_args!("{from}: send the clone to {to}"), || {
                clone.forward(0, made, cookie)
            })?;
            Ok(())
        })
    })
}
