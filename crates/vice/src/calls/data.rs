//! Calls on a file's bytes.

use bytes::Bytes;
use store::Vnode;
use types::posix::touch_data;
use types::{AllocateMode, Answer, DataUse, DataVersion, Fault, Fid, Kind, SeekWhat, limits};

use super::status::written_by;
use crate::access::Right;
use crate::call::{CallContext, CallOutcome, Fed};
use crate::files::quota_charge;
use crate::files::{Change, Files};
use crate::volumes::ViceVolume;

/// Checksums of one answer: they must fit into a message.
const SUMS_MAX: u32 = (limits::MESSAGE_BYTES_MAX / 8) as u32;

pub(crate) fn read(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    offset: u64,
    length: u32,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume_to_read(ask, fid)?;
    let (status, data) = with_body(files, ask, &volume, fid, |reader| {
        let length = (length as usize).min(limits::PAYLOAD_BYTES_MAX);
        Ok((volume.status_of(reader.vnode()), reader.read(offset, length)?))
    })?;
    let end = offset.saturating_add(data.len() as u64) >= status.size;
    Ok(CallOutcome::Answer(Answer::Data { data, end, status }))
}

/// Packed chunks are sent as they are stored, with the checksums of their content, if they are
/// fewer bytes than were requested.
pub(crate) fn read_packed(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    offset: u64,
    length: u32,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume_to_read(ask, fid)?;
    let length = length.min(limits::PAYLOAD_BYTES_MAX as u32);
    let answer = with_body(files, ask, &volume, fid, |reader| {
        let status = volume.status_of(reader.vnode());
        let to = offset.saturating_add(length.into());
        let end = |got: u64| offset.saturating_add(got) >= status.size;
        Ok(match reader.read_packed(offset, length)? {
            Some(run) => Answer::Packed { run, end: to >= status.size, status },
            None => {
                let data = reader.read(offset, length as usize)?;
                Answer::Data { end: end(data.len() as u64), data, status }
            }
        })
    })?;
    Ok(CallOutcome::Answer(answer))
}

pub(crate) fn seek(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    offset: u64,
    what: SeekWhat,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    let found = with_body(files, ask, &volume, fid, |reader| {
        if offset >= reader.vnode().status.size {
            return Ok(None);
        }
        Ok(reader.seek(offset, what)?)
    })?;
    found.map(|at| CallOutcome::Answer(Answer::Offset(at))).ok_or(Fault::NothingThere)
}

pub(crate) fn open_body(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume_to_read(ask, fid)?;
    if volume.need_writable().is_err() {
        // As for kernels: see `lend_body`.
        return Err(Fault::Unsupported);
    }
    let (status, body) = with_body(files, ask, &volume, fid, |reader| {
        Ok((volume.status_of(reader.vnode()), reader.open_body()?))
    })?;
    let body = body.ok_or(Fault::Unsupported)?;
    Ok(CallOutcome::Body(Answer::Body { status }, body))
}

pub(crate) fn read_sums(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    first: u64,
    count: u32,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume_to_read(ask, fid)?;
    let (version, sums) = with_body(files, ask, &volume, fid, |reader| {
        Ok((reader.vnode().status.data_version, reader.sums(first, count.min(SUMS_MAX))?))
    })?;
    Ok(CallOutcome::Answer(Answer::Sums { version, sums }))
}

fn with_body<T>(
    files: &Files,
    ask: &mut CallContext<'_>,
    volume: &ViceVolume,
    fid: Fid,
    look: impl FnOnce(&store::BodyReader) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let _seen = files.read_lock(fid);
    files.need_back(ask, volume, &[fid])?;
    let reader = volume.store.reader(fid.vnode)?.ok_or(Fault::Stale)?;
    if reader.vnode().status.fid != fid {
        return Err(Fault::Stale);
    }
    need_file(reader.vnode())?;
    files.need_data(ask, volume, reader.vnode(), Right::ReadData)?;
    files.need_share(ask, fid, DataUse::Read)?;
    files.promise(ask, volume, &[fid])?;
    look(&reader)
}

pub(crate) fn write(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    offset: Option<u64>,
    data: &Bytes,
    stable: bool,
    kill: bool,
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    files.need_data(ask, &volume, &vnode, Right::WriteData)?;
    files.need_share(ask, fid, DataUse::Write)?;
    if data.len() > limits::PAYLOAD_BYTES_MAX {
        return Err(Fault::Invalid);
    }
    files.promise(ask, &volume, &[fid])?;
    let previous_version = vnode.status.data_version;
    if data.is_empty() {
        let at = offset.unwrap_or(vnode.status.size);
        return Ok(CallOutcome::Answer(written(files, &vnode, 0, at, previous_version)));
    }
    let mut change = Change::new(ask.scope, &volume);
    volume.store.loans().settle(&mut vnode, &mut change.update)?;
    let appends = offset.is_none();
    let mut offset = offset.unwrap_or(vnode.status.size);
    let end = check_end(offset, data.len() as u64)?;
    let size = vnode.status.size.max(end);
    let grows = |free| quota_charge::of_range(&volume, &vnode, offset, end, size, free);
    change.take_room(files.room_for(ask, &volume, 0, grows)?);
    written_by(ask.caller, kill, &mut vnode, &mut change)?;
    if appends {
        offset = volume.store.body(&mut vnode, &mut change.update)?.append(data)?;
    } else {
        volume.store.body(&mut vnode, &mut change.update)?.write(offset, data)?;
    }
    touch_data(&mut vnode.status, ask.wall);
    change.put_data(&vnode);
    if stable {
        change.sync(&vnode);
    }
    let answer = written(files, &vnode, data.len() as u32, offset, previous_version);
    files.commit(ask, change, answer)
}

pub(crate) fn allocate(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    offset: u64,
    length: u64,
    mode: AllocateMode,
) -> Result<CallOutcome, Fault> {
    let (volume, _held) = files.change(ask, fid)?;
    let mut vnode = volume.vnode(fid)?;
    need_file(&vnode)?;
    files.need_data(ask, &volume, &vnode, Right::WriteData)?;
    files.need_share(ask, fid, DataUse::Write)?;
    if length == 0 {
        return Err(Fault::Invalid);
    }
    let end = check_end(offset, length)?;
    files.promise(ask, &volume, &[fid])?;
    let previous_version = vnode.status.data_version;
    let mut change = Change::new(ask.scope, &volume);
    if mode != AllocateMode::PunchHole {
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroExtend);
        let size = if grows { vnode.status.size.max(end) } else { vnode.status.size };
        let growth = |free| quota_charge::of_range(&volume, &vnode, offset, end, size, free);
        change.take_room(files.room_for(ask, &volume, 0, growth)?);
    }
    written_by(ask.caller, false, &mut vnode, &mut change)?;
    volume.store.body(&mut vnode, &mut change.update)?.allocate_range(offset, length, mode)?;
    touch_data(&mut vnode.status, ask.wall);
    change.put_data(&vnode);
    let answer = written(files, &vnode, 0, offset, previous_version);
    files.commit(ask, change, answer)
}

fn written(
    files: &Files,
    vnode: &Vnode,
    count: u32,
    offset: u64,
    previous_version: DataVersion,
) -> Answer {
    debug_assert!(
        count == 0 || vnode.status.data_version > previous_version,
        "CB-6: a write leaves the data version of {} as it was",
        vnode.status.fid
    );
    let verifier = files.boot_verifier();
    Answer::Written { count, offset, status: vnode.status, previous_version, verifier }
}

/// Makes all changes of this file that were answered before the call stable. The verifier is
/// read first: if unstable changes are lost meanwhile, the caller sees another verifier than
/// that of its writes.
pub(crate) fn commit_file(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    ask.fed = Some(Fed::by(&volume.store, true));
    let verifier = files.boot_verifier();
    let vnode = volume.vnode(fid)?;
    if vnode.status.kind == Kind::File {
        volume.store.sync_body(&vnode)?;
    }
    volume.partition.sync()?;
    Ok(CallOutcome::Answer(Answer::Committed { verifier }))
}

pub(crate) fn commit_volume(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    ask.fed = Some(Fed::by(&volume.store, true));
    volume.vnode(fid)?;
    let verifier = files.boot_verifier();
    volume.partition.sync_all()?;
    Ok(CallOutcome::Answer(Answer::Committed { verifier }))
}

pub(crate) fn need_file(vnode: &Vnode) -> Result<(), Fault> {
    match vnode.status.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Fault::IsDirectory),
        _ => Err(Fault::Invalid),
    }
}

/// The end of a range, if a file may be so long.
fn check_end(offset: u64, length: u64) -> Result<u64, Fault> {
    match offset.checked_add(length) {
        Some(end) if end <= limits::FILE_BYTES_MAX => Ok(end),
        _ => Err(Fault::TooBig),
    }
}
