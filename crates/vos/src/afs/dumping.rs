//! Dumps of AFS: out of a server of either kind, and into one.
//!
//! A read-write volume is dumped from a clone, so its clients go on. A dump makes a new volume
//! (`making`), or replaces what a volume has, which is out of service meanwhile; if it breaks off
//! the volume stays so, with a part of what came, and the same restore is repeated.

use afs3::volumes::{RESTORE_INCREMENTAL, VolumesCall, transaction_flag, volume_flag, volume_type};
use types::{Revised, ServerId, VolumeGroup, VolumeInfo, VolumeKind, WhichVolume};

use super::making::make_filled;
use super::places::AfsPlace;
use super::transactions::{AfsTransaction, cookie};
use super::volume_server::VolumeServer;
use super::{is_afs, number, partition};
use crate::afs_calls::{NextPiece, TakePiece};
use crate::claim::Claim;
use crate::create::announced;
use crate::{Job, NewVolume, VosError, examine};

/// The flag of a restored dump of a whole volume.
const RESTORE_WHOLE: i32 = 0;

/// A dump of AFS that is to be restored.
#[derive(Clone, Copy, Debug)]
pub struct AfsDump {
    /// It has only what changed since another one.
    pub is_incremental: bool,
    /// Its size.
    pub total_bytes: u64,
}

/// Writes a dump of what changed in a volume since a time, in seconds since 1970; 0: everything.
///
/// # Errors
/// Errors of the server and of `take`.
pub fn dump_afs(
    job: &Job<'_>,
    server: ServerId,
    volume: &VolumeInfo,
    from_date: u32,
    take: &mut TakePiece<'_>,
) -> Result<(), VosError> {
    let at = VolumeServer::of(job.servers, server)?;
    let partition = partition(job.servers, server, &partition_name(job, server, volume)?)?;
    let place = AfsPlace { at, partition, volume: number(volume.id)? };
    if job.dry_run {
        return job.step(format_args!("{}: read the volume", at.name()), || Ok(())).map(drop);
    }
    let mut send = |from: &AfsTransaction<'_>| -> Result<(), VosError> {
        let call =
            VolumesCall::Dump { transaction: from.number(), from_date: from_date.cast_signed() };
        let (name, total) = (at.name(), if from_date == 0 { volume.used_bytes } else { 0 });
        let mut bytes = 0;
        job.step("read the volume", || {
            at.afs.dump(server, &call, &mut |piece| {
                bytes += piece.len() as u64;
                job.progress(&name, bytes, total);
                take(piece)
            })
        })?;
        Ok(())
    };
    // A server of Rialto dumps a snapshot by itself.
    if volume.kind == VolumeKind::ReadWrite && is_afs(job.servers, server)? {
        // The dump has the clone's name.
        let name = volume.name.as_bytes().to_vec();
        return place.with_clone(job, &name, volume_type::RO, |clone, _| send(clone));
    }
    let held = place.hold(transaction_flag::BUSY)?;
    send(&held)?;
    held.end()
}

fn partition_name(
    job: &Job<'_>,
    server: ServerId,
    volume: &VolumeInfo,
) -> Result<String, VosError> {
    let odd = || VosError::Odd(job.servers.name(server));
    match job.servers.call(server, types::VolumeCall::Partitions)? {
        types::Answer::Partitions(all) => {
            all.into_iter().find(|one| one.no == volume.partition).map(|one| one.name)
        }
        _ => None,
    }
    .ok_or_else(odd)
}

/// Sends a dump to a transaction.
fn fill(
    job: &Job<'_>,
    at: VolumeServer<'_>,
    call: &VolumesCall,
    dump: &AfsDump,
    next: &mut NextPiece<'_>,
) -> Result<(), VosError> {
    let (name, mut bytes) = (at.name(), 0);
    job.step(format_args!("{name}: send the dump"), || {
        at.afs.restore(at.server, call, &mut || {
            let piece = next()?;
            bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
            job.progress(&name, bytes, dump.total_bytes);
            Ok(piece)
        })
    })?;
    Ok(())
}

/// Makes a volume of a dump; `None` in a dry run.
///
/// # Errors
/// As [`crate::restore`].
pub fn restore_afs(
    job: &Job<'_>,
    new: &NewVolume,
    dump: &AfsDump,
    next: &mut NextPiece<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    let at = VolumeServer::of(job.servers, new.server)?;
    let claim = announced(job, new, "restore")?;
    make_filled(job, claim, new, &mut |made, cookie, _| {
        let (transaction, flags) = (made.number(), RESTORE_WHOLE);
        fill(job, at, &VolumesCall::Restore { transaction, flags, cookie }, dump, next)
    })
}

/// Brings the read-write volume of a group into the state of a dump; `None` in a dry run.
///
/// # Errors
/// `Unfit`, `Busy`; errors of the servers, of the database and of `next`. If the dump broke off the
/// volume is out of service until a restore is complete.
pub fn restore_afs_over(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    dump: &AfsDump,
    next: &mut NextPiece<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    let here = group.record.read_write_site().cloned();
    let site = here.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let at = VolumeServer::of(job.servers, site.server)?;
    let partition = partition(job.servers, site.server, &site.partition)?;
    at.need_partition(partition)?;
    let (id, volume) = (group.record.read_write, number(group.record.read_write)?);
    let cookie = cookie(group.record.name.as_bytes(), volume_type::RW, volume)?;
    let is_resumed = group.record.busy.is_some();
    let claim = Claim::of(job, group, "restore over it")?;
    if job.dry_run {
        job.step(format_args!("{}: send the dump", at.name()), || Ok(()))?;
        return claim.done("the volume is restored", |_| {}).map(|_| None);
    }
    if is_resumed {
        at.end_left(&[volume])?;
    }
    let flags = if dump.is_incremental { RESTORE_INCREMENTAL } else { RESTORE_WHOLE };
    let held = match AfsTransaction::begin(at, volume, partition, transaction_flag::OFFLINE) {
        Ok(held) => held,
        Err(error) => return Err(claim.give_up(error)),
    };
    // Clients are not to see the half of it, whatever happens to this program.
    held.set_flags(volume_flag::OUT_OF_SERVICE)?;
    let call = VolumesCall::Restore { transaction: held.number(), flags, cookie };
    if let Err(error) = fill(job, at, &call, dump, next) {
        job.note("the volume is out of service: repeat the restore");
        return Err(error);
    }
    held.set_flags(0)?;
    held.end()?;
    claim.done("the volume is restored", |_| {})?;
    let there = examine(job.servers, site.server, WhichVolume::Id(id))?;
    Ok(there.and_then(|found| found.into_iter().next()))
}
