//! Messages of answers, written as those in `call.rs`.

use bytes::Bytes;
use types::limits::{
    ACL_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, TARGET_BYTES_MAX,
    TARGET_LISTED_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use types::{
    Answer, ByteRange, DataVersion, DirEntry, Kind, LockConflict, PackedRun, Revision, Status,
    VolumeStatus,
};

use super::auth::{TOKEN, get_ticket, put_ticket};
use super::call::XATTR_NAME;
use super::cell::{
    get_changes, get_groups, get_invitations, get_joined, get_servers, put_changes, put_groups,
    put_invitations, put_joined, put_servers,
};
use super::layout::{
    Flag, Layout, Long, LongList, Plain, Short, layout, lock_mode, messages, record,
};
use super::pts::{
    get_names, get_principals, get_subdomain, put_names, put_principals, put_subdomain,
};
use super::rules::{
    get_enforced, get_fences, get_mandates, put_enforced, put_fences, put_mandates,
};
use super::standby::STANDBYS;
use super::status::STATUS_BYTES;
use super::transfer::{get_incoming, get_tasks, put_incoming, put_tasks};
use super::volume::{PARTITIONS, get_volumes, put_volumes};
use super::{AnswerKind, EncodedAnswer};
use crate::WireError;
use crate::limits::SUMS_MAX;
use crate::wire::{FieldReader, Writer, limit};

/// Bytes of a listing's entry without its name and status.
pub const ENTRY_BYTES: usize = 36;
/// Bytes before the entries of a listing.
pub const ENTRIES_HEAD_BYTES: usize = 13;
/// Bytes of a report: a message less its head.
const REPORT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 4;

/// The names of extended attributes, each of two bytes or more.
const XATTR_NAMES: LongList<Short> =
    LongList("attribute names", MESSAGE_BYTES_MAX / 2, 2, XATTR_NAME);
/// Checksums of blocks.
const SUMS: LongList<Plain> = LongList("sums", SUMS_MAX, size_of::<u32>(), Plain);

/// The bytes of an answer. A listing or a run of checksums that does not fit is cut after the last
/// element that does.
///
/// # Errors
/// [`WireError`]: the answer breaks a limit.
pub fn encode_answer(answer: &Answer) -> Result<EncodedAnswer, WireError> {
    let mut to = Writer::new();
    let mut payload = Bytes::new();
    put_answer(&mut to, answer, &mut payload);
    Ok(EncodedAnswer { procedure: AnswerKind::of(answer) as u16, message: to.end()?, payload })
}

messages! {
    Answer by AnswerKind:
    fn put_answer(to, payload: &mut Bytes);
    fn get_answer(from, number, payload: Bytes);
    {
        Done => Done {}
        Entry => Entry { status, dir_version, sole: Flag("sole") }
        Made => Made { status, dir, existed: Flag("existed") }
        Removed => Removed { status, dir }
        Acl => Acl { of, list: Long("access list bytes", ACL_BYTES_MAX) }
        Rights => Rights { of, rights }
        Written => Written { status, offset, previous_version, verifier, count }
        Committed => Committed { verifier }
        Body => Body { status }
        Delegation => Delegation { status, slots }
        Opened => Opened { status, open }
    }
    (
        Status => Status;
        Target => Target: Short("target bytes", TARGET_BYTES_MAX);
        Xattr => Xattr: Long("attribute value bytes", XATTR_VALUE_BYTES_MAX);
        XattrNames => XattrNames: XATTR_NAMES;
        Volume => Volume;
        Offset => Offset;
        Blank => Blank;
        LockTest => LockTest;
        Partitions => Partitions: PARTITIONS;
        Cursor => Cursor;
        Feed => Feed;
        Standbys => Standbys: STANDBYS;
        Inherited => Inherited;
        Level => Level;
        Revision => Revision;
        Number => Number;
        Token => Token: TOKEN;
        Report => Report: Long("report bytes", REPORT_BYTES_MAX);
    )
    put {
        Answer::Entries { entries, end, dir_version } => {
            put_entries(to, entries, *end, *dir_version);
        }
        Answer::Renamed { status, other, from_dir, to_dir } => {
            [status, from_dir, to_dir].into_iter().for_each(|status| Plain.put(to, status));
            to.bool(other.is_some());
            other.iter().for_each(|other| Plain.put(to, other));
        }
        Answer::Data { data, end, status } => {
            *payload = data.clone();
            Plain.put(to, status);
            to.length32("bytes read", data.len(), PAYLOAD_BYTES_MAX).bool(*end);
        }
        Answer::Packed { run, end, status } => {
            *payload = run.bytes.clone();
            Plain.put(to, status);
            put_packed(to, run, *end);
        }
        Answer::Sums { version, sums } => {
            let sums = &sums[..sums.len().min(SUMS_MAX)];
            to.u64(version.0).length32("sums", sums.len(), SUMS_MAX);
            sums.iter().for_each(|sum| Plain.put(to, sum));
        }
        Answer::Part(part) => {
            *payload = part.clone();
            to.length32("bytes of a part", part.len(), PAYLOAD_BYTES_MAX);
        }
        Answer::Records { copy, at, end, part } => {
            let part = part.reveal();
            *payload = Bytes::copy_from_slice(part);
            to.u64(*copy)
                .u64(at.0)
                .length32("bytes of records", part.len(), PAYLOAD_BYTES_MAX)
                .bool(*end);
        }
        Answer::Volumes { volumes, end } => put_volumes(to, volumes, *end),
        Answer::Tasks(tasks) => put_tasks(to, tasks),
        Answer::Incoming { trees, base } => put_incoming(to, trees, *base),
        Answer::Groups { groups, end } => put_groups(to, groups, *end),
        Answer::Servers(servers) => put_servers(to, servers),
        Answer::Changes { at, changes } => put_changes(to, *at, changes.as_ref()),
        Answer::Principals { principals, end } => put_principals(to, principals, *end),
        Answer::Names { names, end } => put_names(to, names, *end),
        Answer::Subdomain { at, groups } => put_subdomain(to, *at, groups),
        Answer::Fences { fences, end } => put_fences(to, fences, *end),
        Answer::Mandates { mandates, end } => put_mandates(to, mandates, *end),
        Answer::Invitations { invitations, end } => put_invitations(to, invitations, *end),
        Answer::Joined { facts, secrets } => put_joined(to, facts, secrets),
        Answer::Enforced { number, missing } => put_enforced(to, *number, missing),
        Answer::Ticket { token, reply } => put_ticket(to, token.reveal(), reply),
    }
    get {
        AnswerKind::Entries => get_entries(from)?,
        AnswerKind::Renamed => get_renamed(from)?,
        AnswerKind::Data => get_data(from, payload)?,
        AnswerKind::Packed => get_packed(from, payload)?,
        AnswerKind::Sums => Answer::Sums { version: Plain.get(from)?, sums: SUMS.get(from)? },
        AnswerKind::Part
            if from.length32("bytes of a part", PAYLOAD_BYTES_MAX)? == payload.len() =>
        {
            Answer::Part(payload)
        }
        AnswerKind::Part => return Err(WireError::BadPayload),
        AnswerKind::Records => get_records(from, &payload)?,
        AnswerKind::Volumes => get_volumes(from)?,
        AnswerKind::Tasks => get_tasks(from)?,
        AnswerKind::Incoming => get_incoming(from)?,
        AnswerKind::Groups => get_groups(from)?,
        AnswerKind::Servers => get_servers(from)?,
        AnswerKind::Changes => get_changes(from)?,
        AnswerKind::Principals => get_principals(from)?,
        AnswerKind::Names => get_names(from)?,
        AnswerKind::Subdomain => get_subdomain(from)?,
        AnswerKind::Fences => get_fences(from)?,
        AnswerKind::Mandates => get_mandates(from)?,
        AnswerKind::Enforced => get_enforced(from)?,
        AnswerKind::Invitations => get_invitations(from)?,
        AnswerKind::Joined => get_joined(from)?,
        AnswerKind::Ticket => get_ticket(from)?,
    }
}

record!(VolumeStatus {
    quota_bytes,
    quota_files,
    used_bytes,
    used_files,
    partition_bytes,
    partition_free_bytes,
});

impl Layout<Option<LockConflict>> for Plain {
    fn put(&self, to: &mut Writer, conflict: &Option<LockConflict>) {
        let none = (ByteRange { start: 0, end: 0 }, 0, 0);
        let (range, mode, pid) =
            conflict.as_ref().map_or(none, |held| (held.range, held.mode as u8, held.pid));
        self.put(to, &range);
        to.u32(pid).u8(mode);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<LockConflict>, WireError> {
        let (range, pid, mode): (ByteRange, _, _) = (self.get(from)?, from.u32()?, from.u8()?);
        match (mode, lock_mode(mode)) {
            (0, _) if range.start == 0 && range.end == 0 && pid == 0 => Ok(None),
            (_, Some(mode)) => Ok(Some(LockConflict { range, mode, pid })),
            _ => Err(WireError::BadValue { what: "lock mode", value: mode.into() }),
        }
    }
}

fn put_entries(to: &mut Writer, entries: &[DirEntry], end: bool, dir_version: DataVersion) {
    to.u64(dir_version.0).u32(0).u8(0);
    debug_assert_eq!(to.len(), ENTRIES_HEAD_BYTES);
    let mut put = 0;
    for entry in entries {
        let name = entry.name.as_bytes();
        let target = listed_target(entry);
        let bytes = ENTRY_BYTES
            + name.len()
            + entry.status.map_or(0, |_| STATUS_BYTES)
            + target.map_or(0, |target| size_of::<u16>() + target.len());
        if to.len() + bytes > MESSAGE_BYTES_MAX {
            break;
        }
        to.fid(entry.fid)
            .u64(entry.cookie.0)
            .name_length(&entry.name)
            .u8(entry.kind as u8)
            .u8(entry_flags(entry))
            .raw(name);
        entry.status.iter().for_each(|status| Plain.put(to, status));
        if let Some(target) = target {
            to.length16("target bytes", target.len(), TARGET_LISTED_BYTES_MAX).raw(target);
        }
        put += 1;
    }
    to.patch_u32(8, put as u32);
    to.patch_u8(12, u8::from(end && put == entries.len()));
}

/// Bit 0: a status follows; bit 1: the caller's delegation covers it; bit 2: a target follows the
/// status.
fn entry_flags(entry: &DirEntry) -> u8 {
    let status = entry.status.is_some();
    u8::from(status)
        | u8::from(entry.sole && status) << 1
        | u8::from(listed_target(entry).is_some()) << 2
}

/// The target of a symbolic link, if the entry has it.
fn listed_target(entry: &DirEntry) -> Option<&Bytes> {
    entry.target.as_ref().filter(|_| entry.status.is_some() && entry.kind == Kind::Symlink)
}

/// Decodes an answer.
///
/// # Errors
/// [`WireError`]: the bytes are no answer.
pub fn decode_answer(procedure: u16, message: &[u8], payload: Bytes) -> Result<Answer, WireError> {
    let unknown = WireError::BadValue { what: "kind of answer", value: procedure.into() };
    let kind = AnswerKind::from_wire(procedure).ok_or(unknown)?;
    let has_payload = matches!(
        kind,
        AnswerKind::Data | AnswerKind::Packed | AnswerKind::Part | AnswerKind::Records
    );
    if !has_payload && !payload.is_empty() {
        return Err(WireError::BadPayload);
    }
    limit("message bytes", message.len(), MESSAGE_BYTES_MAX)?;
    let mut from = FieldReader::new(message);
    let answer = get_answer(&mut from, kind, payload)?;
    from.end().map(|()| answer)
}

fn get_entries(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let dir_version = Plain.get(from)?;
    let count = from.u32()? as usize;
    let end = from.bool("end")?;
    from.check_room(count, ENTRY_BYTES + 1)?;
    let entries = (0..count).map(|_| get_entry(from)).collect::<Result<_, _>>()?;
    Ok(Answer::Entries { entries, end, dir_version })
}

fn get_entry(from: &mut FieldReader<'_>) -> Result<DirEntry, WireError> {
    let (fid, cookie) = (from.fid()?, Plain.get(from)?);
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let kind = from.choice("kind", Kind::from_wire)?;
    let flags = from.u8()?;
    let (with_status, sole, with_target) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let possible =
        flags < 8 && (with_status || flags == 0) && (kind == Kind::Symlink || !with_target);
    if !possible {
        return Err(WireError::BadValue { what: "flags of an entry", value: flags.into() });
    }
    let name = from.name(length)?;
    let status = with_status.then(|| Plain.get(from)).transpose()?;
    let target = with_target.then(|| get_listed_target(from)).transpose()?;
    Ok(DirEntry { name, fid, kind, cookie, status, sole, target })
}

fn get_listed_target(from: &mut FieldReader<'_>) -> Result<Bytes, WireError> {
    let length = from.length16("target bytes", TARGET_LISTED_BYTES_MAX)?;
    // Copied out of the message, because it lives longer.
    from.bytes(length).map(Bytes::copy_from_slice)
}

fn get_renamed(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (status, from_dir, to_dir) = (Plain.get(from)?, Plain.get(from)?, Plain.get(from)?);
    let other: Option<Status> = from.bool("other")?.then(|| Plain.get(from)).transpose()?;
    Ok(Answer::Renamed { status, other, from_dir, to_dir })
}

fn get_data(from: &mut FieldReader<'_>, data: Bytes) -> Result<Answer, WireError> {
    let status = Plain.get(from)?;
    if from.length32("bytes read", PAYLOAD_BYTES_MAX)? != data.len() {
        return Err(WireError::BadPayload);
    }
    Ok(Answer::Data { data, end: from.bool("end")?, status })
}

fn get_records(from: &mut FieldReader<'_>, part: &[u8]) -> Result<Answer, WireError> {
    let (copy, at) = (from.u64()?, Revision(from.u64()?));
    if from.length32("bytes of records", PAYLOAD_BYTES_MAX)? != part.len() {
        return Err(WireError::BadPayload);
    }
    Ok(Answer::Records { copy, at, end: from.bool("end")?, part: part.to_vec().into() })
}

fn put_packed(to: &mut Writer, run: &PackedRun, end: bool) {
    to.u64(run.offset)
        .length32("bytes of a packed run", run.length as usize, PackedRun::BYTES_MAX)
        .length32("bytes read", run.bytes.len(), PAYLOAD_BYTES_MAX)
        .bool(end);
    run.frames.iter().chain(&run.sums).for_each(|number| {
        to.u32(*number);
    });
}

/// The numbers of frames and checksums follow from the unpacked length.
fn get_packed(from: &mut FieldReader<'_>, bytes: Bytes) -> Result<Answer, WireError> {
    let (status, offset) = (Plain.get(from)?, from.u64()?);
    let length = from.length32("bytes of a packed run", PackedRun::BYTES_MAX)? as u32;
    if from.length32("bytes read", PAYLOAD_BYTES_MAX)? != bytes.len() {
        return Err(WireError::BadPayload);
    }
    let end = from.bool("end")?;
    let mut numbers = |each: u64| {
        (0..u64::from(length).div_ceil(each)).map(|_| from.u32()).collect::<Result<_, _>>()
    };
    let (frames, sums) = (numbers(PackedRun::CHUNK_BYTES)?, numbers(PackedRun::BLOCK_BYTES)?);
    let run = PackedRun { offset, length, frames, sums, bytes };
    let wrong = WireError::BadValue { what: "packed run at", value: offset };
    if run.is_whole() { Ok(Answer::Packed { run, end, status }) } else { Err(wrong) }
}

/// The record of an answer that the store saves for exactly-once: one run of bytes, the kind first.
///
/// # Panics
/// For `Data`, which answers no change, and for an answer that breaks a limit, which answers no
/// change either.
pub fn encode_answer_record(answer: &Answer) -> Vec<u8> {
    assert!(
        !matches!(
            answer,
            Answer::Data { .. } | Answer::Packed { .. } | Answer::Part(_) | Answer::Records { .. }
        ),
        "EO-1: data is read again, never recorded"
    );
    let encoded = encode_answer(answer).expect("EO-1: the answer to a change is within the limits");
    [&encoded.procedure.to_le_bytes()[..], &encoded.message].concat()
}

/// Decodes a record's answer.
///
/// # Errors
/// [`WireError`]: the bytes are no record.
pub fn decode_answer_record(record: &[u8]) -> Result<Answer, WireError> {
    let (kind, message) = record.split_first_chunk::<2>().ok_or(WireError::Truncated)?;
    decode_answer(u16::from_le_bytes(*kind), message, Bytes::new())
}
