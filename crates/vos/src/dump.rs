//! A volume as parts of a stream, and back: for dumps.
//!
//! To dump a read-write volume a snapshot of it is made and removed again; any other volume of its group is read as it is. Nothing is kept at the server.
//!
//! Steps of a restore: announced in the database with its number, and claimed; the parts come in at the server; it becomes the volume; the claim goes.
//! Whoever stops in the middle goes on with the same dump, and what a server refuses leaves nothing.

use bytes::Bytes;
use types::{
    Answer, Finish, Name, ServerId, StreamCursor, Timestamp, VolumeCall, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
    limits,
};

use crate::create::announced;
use crate::{Error, Job, NewVolume, examine, partition_no};

const OPERATION: &str = "restore";

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
    fn begin(&mut self, volume: &VolumeInfo) -> Result<(), Error>;

    /// The next part; says where it ends.
    ///
    /// # Errors
    /// Whatever stops the dump.
    fn part(&mut self, part: Bytes) -> Result<StreamCursor, Error>;
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
) -> Result<(), Error> {
    if volume.kind != VolumeKind::ReadWrite {
        return send(job, server, volume, since, sink);
    }
    let name = Name::new(&[volume.name.as_bytes(), b".dumping"].concat())
        .map_err(|_| Error::Unfit("the name of its snapshot would be too long".to_owned()))?;
    let kind = VolumeKind::Snapshot;
    let clone = VolumeCall::Clone { id: None, of: volume.id, name, kind, replace: true };
    let Some(sealed) = job.call_one("snapshot", server, clone)? else { return Ok(()) };
    let sent = send(job, server, &sealed, since, sink);
    let removed = job.call("remove the snapshot", server, VolumeCall::Remove { id: sealed.id });
    sent.and(removed.map(drop))
}

fn send(job: &Job<'_>, server: ServerId, volume: &VolumeInfo, since: u64, sink: &mut dyn Sink) -> Result<(), Error> {
    if job.step("read the volume", || Ok(()))?.is_none() {
        return Ok(());
    }
    if since >= volume.epoch {
        return Err(Error::Unfit("it shows nothing newer than what the dump is to start from".to_owned()));
    }
    sink.begin(volume)?;
    let name = job.servers.name(server);
    let (mut cursor, mut bytes) = (StreamCursor::START, 0);
    let total_bytes = if since == 0 { volume.used_bytes } else { 0 };
    while cursor != StreamCursor::END {
        let bytes_max = limits::PAYLOAD_BYTES_MAX as u32;
        let call = VolumeCall::Changes { id: volume.id, since, cursor, bytes_max };
        let Answer::Part(part) = job.servers.call(server, call)? else { return Err(Error::Odd(name)) };
        bytes += part.len() as u64;
        cursor = sink.part(part)?;
        job.progress(&name, bytes, total_bytes);
    }
    Ok(())
}

/// Makes a volume of all parts of a full dump; `None` if that was only said. `quota_files` comes from the dump.
///
/// # Errors
/// As [`crate::create`]; what `next` says.
pub fn restore(
    job: &Job<'_>,
    new: &NewVolume,
    quota_files: u64,
    total_bytes: u64,
    next: &mut dyn FnMut() -> Result<Option<Part>, Error>,
) -> Result<Option<VolumeInfo>, Error> {
    let partition = partition_no(job.servers, new.server, &new.partition)?;
    let claim = announced(job, new, OPERATION)?;
    let tree = claim.group.read_write;
    let known = if job.dry_run { None } else { examine(job.servers, new.server, WhichVolume::Id(tree))? };
    if let Some(known) = known.and_then(|volumes| volumes.into_iter().next()) {
        claim.done("the volume is there", |_| {})?;
        return Ok(Some(known));
    }
    let created = Timestamp::new((job.who.now_secs)(), 0);
    let (name, quota_bytes) = (new.name.clone(), new.quota_bytes);
    let finish = Finish::ReadWrite { name, quota_bytes, quota_files, created, arriving: false };
    let made = apply(job, new.server, (partition, tree), total_bytes, next).and_then(|()| {
        job.call_one("make the volume of what came", new.server, VolumeCall::Finish { partition, tree, finish })
    });
    match made {
        Ok(made) => {
            claim.done("the volume is there", |_| {})?;
            Ok(made)
        }
        Err(error) if error.is_refusal() => {
            let finish = Finish::Nothing;
            let given_up = VolumeCall::Finish { partition, tree, finish };
            match job.call("what came is given up", new.server, given_up) {
                // Nothing came.
                Ok(_) | Err(Error::Refused { .. }) => claim.forget()?,
                Err(also) => job.note(also),
            }
            Err(error)
        }
        Err(error) => Err(error),
    }
}

fn apply(
    job: &Job<'_>,
    server: ServerId,
    (partition, tree): (types::PartitionNo, VolumeId),
    total_bytes: u64,
    next: &mut dyn FnMut() -> Result<Option<Part>, Error>,
) -> Result<(), Error> {
    if job.step(format_args!("{}: send the dump", job.servers.name(server)), || Ok(()))?.is_none() {
        return Ok(());
    }
    let name = job.servers.name(server);
    let (mut cursor, mut bytes) = (StreamCursor::START, 0);
    while let Some(part) = next()? {
        bytes += part.bytes.len() as u64;
        // It has those already, from an attempt that was stopped.
        if part.to > cursor {
            let call = VolumeCall::Apply { partition, tree, part: part.bytes };
            let Answer::Cursor(at) = job.servers.call(server, call)? else { return Err(Error::Odd(name)) };
            cursor = at;
        }
        job.progress(&name, bytes, total_bytes);
    }
    Ok(())
}
