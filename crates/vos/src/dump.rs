//! Reads a volume as parts of a stream, and makes a volume of such parts: dump and restore.
//!
//! A dump of a read-write volume makes a snapshot and removes it at the end; any other volume of
//! its group is read as it is. The server stores nothing for a dump. The snapshot has one name, so
//! that the next dump replaces what a stopped one left. A dump that begins beside another one
//! replaces its snapshot too: the first one then fails, because its parts may be of two epochs.
//!
//! Steps of a restore: the database announces the volume with its number and claims it; the server
//! receives the parts; it makes the volume of them; the claim is removed. An interrupted restore is
//! continued with the same dump, and a refusal of the server leaves nothing.
//!
//! Steps of a restore over a volume: claimed; the server receives the parts while the volume shows
//! its old state; the volume shows the new state; the claim is removed. Giving up leaves the old
//! state. An increment is applied only to exactly the epoch that it starts from, which the server
//! checks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use types::{
    Answer, Fault, Finish, IncomingTree, PartitionNo, Revised, ServerId, StreamCursor, Timestamp,
    VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume, limits,
};

use crate::claim::{Claim, is_claimed_for};
use crate::create::announced;
use crate::own_volumes::{DUMPING, named, remove_at};
use crate::{Job, NewVolume, VosError, examine, partition_no};

const OPERATION: &str = "restore";
/// How long a restore waits for a volume that is being removed.
const SWEPT_WITHIN: Duration = Duration::from_secs(60);
/// How long a restore waits for a volume that is in use, or is continued and may still have files
/// to be removed.
const FREE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// A part of a dump and its bounds.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it begins.
    pub from: StreamCursor,
    /// Where the next one begins.
    pub to: StreamCursor,
    /// Bytes of the part.
    pub bytes: Bytes,
}

/// Receives the parts of a dump.
pub trait Sink {
    /// Receives the volume that is read, which shows a sealed epoch. Called once, before the parts.
    ///
    /// # Errors
    /// An error of the receiver, which stops the dump.
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), VosError>;

    /// Receives the next part; returns where it ends.
    ///
    /// # Errors
    /// An error of the receiver, which stops the dump.
    fn part(&mut self, part: Bytes) -> Result<StreamCursor, VosError>;
}

/// Reads the changes of a volume since the epoch `since` of its tree (0: all of it).
///
/// # Errors
/// `Unfit` if the volume does not have `since`; errors of the server and of the sink.
pub fn dump(
    job: &Job<'_>,
    server: ServerId,
    volume: &VolumeInfo,
    since: u64,
    sink: &mut dyn Sink,
) -> Result<(), VosError> {
    if volume.kind != VolumeKind::ReadWrite {
        return send(job, server, volume, since, sink);
    }
    let name = named(&volume.name, DUMPING)?;
    let kind = VolumeKind::Snapshot;
    let clone = VolumeCall::Clone { id: None, of: volume.id, name, kind, replace: true };
    let Some(sealed) = job.call_one("snapshot", server, clone)? else { return Ok(()) };
    let sent = send(job, server, &sealed, since, sink);
    // Another dump's snapshot has its number too, so the epoch alone says whose snapshot it is now;
    // epochs never come back. The name may be another one after a rename.
    let is_ours = |now: Option<VolumeInfo>| now.is_some_and(|now| now.epoch == sealed.epoch);
    let removed = match the_volume(job, server, sealed.id).map(is_ours) {
        Ok(true) => remove_at(job, server, sealed.id),
        Ok(false) => {
            let why = "another dump of it was begun meanwhile, or the volume was removed";
            return Err(VosError::Unfit(format!("its snapshot is gone: {why}")));
        }
        Err(error) => Err(error),
    };
    sent.and(removed)
}

fn send(
    job: &Job<'_>,
    server: ServerId,
    volume: &VolumeInfo,
    since: u64,
    sink: &mut dyn Sink,
) -> Result<(), VosError> {
    if job.step("read the volume", || Ok(()))?.is_none() {
        return Ok(());
    }
    if since >= volume.epoch {
        return Err(VosError::Unfit(
            "it shows nothing newer than what the dump is to start from".to_owned(),
        ));
    }
    sink.begin(volume)?;
    let name = job.servers.name(server);
    let (mut cursor, mut bytes) = (StreamCursor::START, 0);
    let total_bytes = if since == 0 { volume.used_bytes } else { 0 };
    while cursor != StreamCursor::END {
        let bytes_max = limits::PAYLOAD_BYTES_MAX as u32;
        // Bodies in clear form, so that any program restores them.
        let call = VolumeCall::Changes { id: volume.id, since, cursor, bytes_max, packed: false };
        let Answer::Part(part) = job.servers.call(server, call)? else {
            return Err(VosError::Odd(name));
        };
        bytes += part.len() as u64;
        cursor = sink.part(part)?;
        job.progress(&name, bytes, total_bytes);
    }
    Ok(())
}

/// The content of a dump.
#[derive(Clone, Debug)]
pub struct Dumped {
    /// The tree that it is of: epochs of others have the same numbers.
    pub tree: VolumeId,
    /// The epoch that it brings, and the one that it starts from; 0: none.
    pub epoch: u64,
    /// See `epoch`.
    pub since: u64,
    /// The name of that epoch for people.
    pub since_name: String,
    /// Limits of the dumped volume.
    pub quota_files: u64,
    /// When the restored volume was made; `None`: now.
    pub created: Option<Timestamp>,
    /// When it was last updated; `None`: now.
    pub updated: Option<Timestamp>,
    /// Bytes of all parts.
    pub total_bytes: u64,
}

/// Returns the next part of a dump; `None` at its end.
pub type Next<'a> = dyn FnMut() -> Result<Option<Part>, VosError> + 'a;

/// Makes a volume of all parts of a full dump; `None` in a dry run.
///
/// # Errors
/// As [`crate::create`]; errors of `next`.
pub fn restore(
    job: &Job<'_>,
    new: &NewVolume,
    dump: &Dumped,
    next: &mut Next<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    let partition = partition_no(job.servers, new.server, &new.partition)?;
    let claim = announced(job, new, OPERATION)?;
    let tree = claim.group.read_write;
    let known = if job.dry_run { None } else { the_volume(job, new.server, tree)? };
    if let Some(known) = known {
        claim.done("the volume is there", |_| {})?;
        return Ok(Some(known));
    }
    let created = dump.created.unwrap_or_else(|| Timestamp::new((job.who.now_secs)(), 0));
    let (name, quota_bytes, quota_files) = (new.name.clone(), new.quota_bytes, dump.quota_files);
    let updated = dump.updated;
    let finish =
        Finish::ReadWrite { name, quota_bytes, quota_files, created, arriving: false, updated };
    let made =
        apply(job, new.server, (partition, tree), (dump.total_bytes, false), next).and_then(|()| {
            job.call_one(
                "make the volume of the received data",
                new.server,
                VolumeCall::Finish { partition, tree, finish },
            )
        });
    match made {
        Ok(made) => {
            claim.done("the volume is there", |_| {})?;
            Ok(made)
        }
        Err(error) if error.is_refusal() => {
            // A session repeats the call to a server that ended before it answered; the second
            // attempt may be refused because the first one made the volume.
            if let Some(made) = the_volume(job, new.server, tree)? {
                claim.done("the volume is there", |_| {})?;
                return Ok(Some(made));
            }
            let finish = Finish::Nothing;
            let given_up = VolumeCall::Finish { partition, tree, finish };
            match job.call("the received data is given up", new.server, given_up) {
                // The server received nothing.
                Ok(_) | Err(VosError::Refused { .. }) => claim.forget()?,
                Err(also) => job.note(also),
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn apply(
    job: &Job<'_>,
    server: ServerId,
    (partition, tree): (PartitionNo, VolumeId),
    (total_bytes, over): (u64, bool),
    next: &mut Next<'_>,
) -> Result<(), VosError> {
    if job.step(format_args!("{}: send the dump", job.servers.name(server)), || Ok(()))?.is_none() {
        return Ok(());
    }
    let name = job.servers.name(server);
    let (mut cursor, mut bytes) = (StreamCursor::START, 0);
    while let Some(part) = next()? {
        bytes += part.bytes.len() as u64;
        // Skips parts that the server has from an interrupted attempt.
        if part.to > cursor {
            let call = VolumeCall::Apply { partition, tree, part: part.bytes, over };
            let Answer::Cursor(at) = job.servers.call(server, call)? else {
                return Err(VosError::Odd(name));
            };
            cursor = at;
        }
        job.progress(&name, bytes, total_bytes);
    }
    Ok(())
}

/// Brings the read-write volume of a group into the state of a dump: an increment from the epoch
/// that it starts from, a full dump from any. `None` in a dry run.
///
/// # Errors
/// `Unfit` if the volume is not at the epoch that the dump starts from; `Busy`; errors of the
/// servers and of the database; errors of `next`. Then the volume is as before.
pub fn restore_over(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    dump: &Dumped,
    next: &mut Next<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    let here = group.record.read_write_site().cloned();
    let site = here.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let (server, tree) = (site.server, group.record.read_write);
    let partition = partition_no(job.servers, server, &site.partition)?;
    let operation = format!("restore over {} {} of {}", dump.since, dump.epoch, dump.tree.0);
    let resumed = is_claimed_for(&group.record, &operation);
    let (begun, base) = incoming(job, server, tree)?;
    let same = begun.filter(|one| one.over && (one.since, one.epoch) == (dump.since, dump.epoch));
    if resumed && begun.is_none() && base == dump.epoch {
        // Only the claim remained.
        Claim::of(job, group, &operation)?.done("the volume is restored", |_| {})?;
        return the_volume(job, server, tree);
    }
    if let (Some(other), None) = (begun, same) {
        let what = if other.over { "another dump" } else { "something else" };
        return Err(VosError::Unfit(format!(
            "an unfinished {what} is there, up to epoch {}; give that up first",
            other.epoch
        )));
    }
    if same.is_none() {
        need_base(dump, base)?;
    }
    let claim = Claim::of(job, group, &operation)?;
    // Another administrator may have been through since we asked.
    let (_, base_before) = incoming(job, server, tree)?;
    let mut is_sent = false;
    let made = begin_swept(job, server, (partition, tree), dump, next).and_then(|()| {
        is_sent = true;
        let finish = Finish::Over { updated: dump.updated };
        job.call_one(
            "the volume shows the received state",
            server,
            VolumeCall::Finish { partition, tree, finish },
        )
    });
    match made {
        Ok(made) => {
            claim.done("the volume is restored", |_| {})?;
            Ok(made)
        }
        Err(error) if error.is_refusal() => {
            // Skips parts as `restore` does. A base that was there before proves nothing: it may be
            // an epoch of that number of another volume.
            let (begun, base) = incoming(job, server, tree)?;
            if begun.is_none() && base == dump.epoch && (is_sent || base_before != base) {
                claim.done("the volume is restored", |_| {})?;
                return the_volume(job, server, tree);
            }
            let error = match error.fault() {
                Some(Fault::Invalid) => VosError::Unfit(
                    "it is a dump of another volume than the one that is there, \
                        which has snapshots, a backup volume, clones or read-only sites on its \
                        partition that show what it had; remove these first, or restore it under \
                        another name"
                        .to_owned(),
                ),
                _ => error,
            };
            let given_up = VolumeCall::Finish { partition, tree, finish: Finish::Nothing };
            match job.call("the received data is given up", server, given_up) {
                // The server received nothing.
                Ok(_) | Err(VosError::Refused { .. }) => Err(claim.give_up(error)),
                Err(also) => {
                    job.note(also);
                    Err(error)
                }
            }
        }
        Err(error) => Err(error),
    }
}

/// Begins as `apply` does, once the rest of an earlier attempt is removed.
fn begin_swept(
    job: &Job<'_>,
    server: ServerId,
    place: (PartitionNo, VolumeId),
    dump: &Dumped,
    next: &mut Next<'_>,
) -> Result<(), VosError> {
    let Some(first) = next()? else { return Err(VosError::Unfit("it has no parts".to_owned())) };
    let begun = Instant::now();
    loop {
        let (mut again, mut went_on) = (Some(first.clone()), false);
        let mut parts = || match again.take() {
            Some(first) => Ok(Some(first)),
            None => {
                went_on = true;
                next()
            }
        };
        let applied = apply(job, server, place, (dump.total_bytes, true), &mut parts);
        let is_busy = matches!(&applied, Err(error) if error.fault() == Some(Fault::Busy));
        if went_on || !is_busy || begun.elapsed() > wait_for(job, server, place)? {
            return applied;
        }
        std::thread::sleep(PAUSE);
    }
}

/// How long to wait for a volume that is busy.
fn wait_for(
    job: &Job<'_>,
    server: ServerId,
    (_, tree): (PartitionNo, VolumeId),
) -> Result<Duration, VosError> {
    let (begun, _) = incoming(job, server, tree)?;
    let volume = the_volume(job, server, tree)?;
    let is_swept = begun.is_none()
        && volume.is_some_and(|volume| volume.state == types::VolumeState::Restoring);
    Ok(if is_swept { SWEPT_WITHIN } else { FREE_WITHIN })
}

fn the_volume(
    job: &Job<'_>,
    server: ServerId,
    id: VolumeId,
) -> Result<Option<VolumeInfo>, VosError> {
    Ok(examine(job.servers, server, WhichVolume::Id(id))?
        .and_then(|volumes| volumes.into_iter().next()))
}

/// The data that the server receives for the tree, and the epoch that its read-write volume is a
/// copy of; 0: none.
fn incoming(
    job: &Job<'_>,
    server: ServerId,
    tree: VolumeId,
) -> Result<(Option<IncomingTree>, u64), VosError> {
    match job.servers.call(server, VolumeCall::Incoming { tree: Some(tree) })? {
        Answer::Incoming { trees, base } => Ok((trees.into_iter().next(), base)),
        _ => Err(VosError::Odd(job.servers.name(server))),
    }
}

/// # Errors
/// `Unfit`, with the epoch that the dump needs.
fn need_base(dump: &Dumped, base: u64) -> Result<(), VosError> {
    let (since, name) = (dump.since, &dump.since_name);
    let why = match base {
        _ if since == 0 || base == since => return Ok(()),
        0 => format!(
            "it has what was changed since epoch {since} ({name}), and the volume is not in that \
                state: it was changed since it was restored, or never was restored"
        ),
        base if base < since => format!(
            "it has what was changed since epoch {since} ({name}), and the volume is as of epoch \
                {base}: the dump from {base} to {since} is missing between them"
        ),
        base if base >= dump.epoch => {
            format!("the volume is as of epoch {base}, and has what the dump brings")
        }
        base => format!(
            "it has what was changed since epoch {since} ({name}), and the volume is as of epoch \
                {base}: the dump that starts from {base} comes next"
        ),
    };
    Err(VosError::Unfit(why))
}
