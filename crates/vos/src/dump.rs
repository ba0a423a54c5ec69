//! A volume as parts of a stream, and back: for dumps.
//!
//! To dump a read-write volume a snapshot of it is made and removed again; any other volume of its
//! group is read as it is. Nothing is kept at the server. The snapshot has one name, so that the
//! next dump takes the place of what a stopped one left. A dump that begins beside another takes
//! its snapshot away too: the first one fails then, because its parts may be of two epochs.
//!
//! Steps of a restore: announced in the database with its number, and claimed; the parts come in at
//! the server; it becomes the volume; the claim goes. Whoever stops in the middle goes on with the
//! same dump, and what a server refuses leaves nothing.
//!
//! Steps of a restore over a volume: claimed; the parts come in over it, while it shows what it
//! had; it shows what came; the claim goes. What is given up leaves it as it was. An increment is
//! applied to a volume that is exactly what it starts from, which the server knows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use types::{
    Answer, Fault, Finish, IncomingTree, PartitionNo, Revised, ServerId, StreamCursor, Timestamp,
    VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume, limits,
};

use crate::claim::Claim;
use crate::create::announced;
use crate::release::{have, named};
use crate::remove::remove_at;
use crate::{Job, NewVolume, VosError, examine, partition_no};

const OPERATION: &str = "restore";
/// What the name of the snapshot ends with that a dump reads.
pub(crate) const DUMPING: &str = ".dumping";
/// How often, and how long, a volume is asked for that is being swept.
const SWEPT_WITHIN: Duration = Duration::from_secs(60);
/// The same of one that goes on already, and may have files to be removed still, or is used by
/// people.
const FREE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// A part, and where it begins and ends.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it begins.
    pub from: StreamCursor,
    /// Where the next one begins.
    pub to: StreamCursor,
    /// The part.
    pub bytes: Bytes,
}

/// Takes what a dump consists of.
pub trait Sink {
    /// The volume that is read, which shows a sealed epoch. Once, before the parts.
    ///
    /// # Errors
    /// Whatever stops the dump.
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), VosError>;

    /// The next part; says where it ends.
    ///
    /// # Errors
    /// Whatever stops the dump.
    fn part(&mut self, part: Bytes) -> Result<StreamCursor, VosError>;
}

/// Reads what a volume has and the epoch `since` of its tree had not (0: all of it).
///
/// # Errors
/// `Unfit` if there is nothing to start from; the server's; the sink's.
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
    let clone =
        VolumeCall::Clone { id: None, of: volume.id, name: name.clone(), kind, replace: true };
    let Some(sealed) = job.call_one("snapshot", server, clone)? else { return Ok(()) };
    let sent = send(job, server, &sealed, since, sink);
    // Its number stays with the name, so the epoch alone says whose snapshot it is now; epochs
    // never come back.
    let is_ours = |now: Option<VolumeInfo>| now.is_some_and(|now| now.epoch == sealed.epoch);
    let removed = match have(job.servers, server, &name).map(is_ours) {
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
        // In clear form, so that any program restores it.
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

/// What a dump brings.
#[derive(Clone, Debug)]
pub struct Dumped {
    /// The tree that it is of: epochs of others have the same numbers.
    pub tree: VolumeId,
    /// The epoch that it brings, and the one that it starts from; 0: none.
    pub epoch: u64,
    /// See `epoch`.
    pub since: u64,
    /// What people call that one.
    pub since_name: String,
    /// Limits of the volume that it is of.
    pub quota_files: u64,
    /// When the restored volume was made; `None`: now.
    pub created: Option<Timestamp>,
    /// When it was last updated; `None`: now.
    pub updated: Option<Timestamp>,
    /// Bytes of all parts.
    pub total_bytes: u64,
}

/// Gives the next part of a dump, until there is none.
pub type Next<'a> = dyn FnMut() -> Result<Option<Part>, VosError> + 'a;

/// Makes a volume of all parts of a full dump; `None` if that was only said.
///
/// # Errors
/// As [`crate::create`]; what `next` says.
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
                "make the volume of what came",
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
            // A server that died before it answered is asked again, and may refuse for what it has
            // done itself.
            if let Some(made) = the_volume(job, new.server, tree)? {
                claim.done("the volume is there", |_| {})?;
                return Ok(Some(made));
            }
            let finish = Finish::Nothing;
            let given_up = VolumeCall::Finish { partition, tree, finish };
            match job.call("what came is given up", new.server, given_up) {
                // Nothing came.
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
        // It has those already, from an attempt that was stopped.
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

/// Brings the read-write volume of a group into the state that a dump has: from the one that it
/// starts from, or, if it has everything, from any. `None` if that was only said.
///
/// # Errors
/// `Unfit` if the volume is not what the dump starts from; `Busy`; the servers' and the database's;
/// what `next` says. Then it is as it was.
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
    let resumed = group.record.busy.as_ref().is_some_and(|busy| busy.operation == operation);
    let (begun, base) = incoming(job, server, tree)?;
    let same = begun.filter(|one| one.over && (one.since, one.epoch) == (dump.since, dump.epoch));
    if resumed && begun.is_none() && base == dump.epoch {
        // Only the claim was left.
        Claim::of(job, group, &operation)?.done("the volume is restored", |_| {})?;
        return the_volume(job, server, tree);
    }
    if let (Some(other), None) = (begun, same) {
        let what = if other.over { "another dump" } else { "something else" };
        return Err(VosError::Unfit(format!(
            "{what} comes in there, up to epoch {}; give that up first",
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
            "the volume shows what came",
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
            // As above. A base that was there before says nothing: it may be an epoch of that
            // number of another volume.
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
            match job.call("what came is given up", server, given_up) {
                // Nothing came.
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

/// As `apply`, when nothing of an earlier attempt is in the way any more.
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

/// How long a volume that is busy is waited for.
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
    tree: VolumeId,
) -> Result<Option<VolumeInfo>, VosError> {
    Ok(examine(job.servers, server, WhichVolume::Id(tree))?
        .and_then(|volumes| volumes.into_iter().next()))
}

/// What comes in for the tree, and the epoch that its read-write volume is a copy of; 0: none.
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
/// `Unfit`, with what is missing.
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
