//! Values of records: a version byte, little-endian fields, and the crc32c of the key and all
//! preceding bytes.
//!
//! The sum covers the key too, which detects a value under a wrong key. A value that fails the
//! check is `Damaged`, and never served. The golden bytes below pin the layouts: a new layout gets
//! a new version byte.

use bytes::Bytes;
use types::{
    ClientId, DataVersion, Fid, Kind, Name, SessionId, Status, StatusVersion, Timestamp,
    Uniquifier, VnodeNo, VolumeId,
};

use crate::error::Result;
use crate::format::key;
use crate::format::vnode::{BodyLocation, EntryTarget, Vnode};
use crate::{BUCKET_ENTRIES_MAX, StoreError};

/// The version of the layouts below.
const VERSION: u8 = 1;
/// Blocks whose sums share a record: one MiB of a body.
pub(crate) const GROUP_BLOCKS: u64 = 64;

/// Sums of one group; 0: a hole.
pub(crate) type Sums = [u32; GROUP_BLOCKS as usize];

/// The number of blocks that are not holes.
pub(crate) fn count(sums: &Sums) -> u64 {
    sums.iter().filter(|sum| **sum != 0).count() as u64
}

/// One name in a bucket: its index is part of its cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketEntry {
    pub(crate) index: u8,
    pub(crate) name: Name,
    pub(crate) target: EntryTarget,
}

/// A session that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// The number of the session.
    pub session: SessionId,
    /// The client of the session.
    pub client: ClientId,
    /// The incarnation of the client.
    pub incarnation: u64,
    /// Data that the server stores with the session.
    pub extra: Bytes,
}

/// The last reply of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// The number of the slot.
    pub slot: u32,
    /// The number of the request.
    pub request: u64,
    /// The encoded reply.
    pub reply: Bytes,
}

/// Encodes a value.
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn new(capacity: usize) -> Out {
        Out::with_version(capacity, VERSION)
    }
    pub(crate) fn with_version(capacity: usize, version: u8) -> Out {
        let mut bytes = Vec::with_capacity(capacity + 5);
        bytes.push(version);
        Out(bytes)
    }
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    pub(crate) fn time(&mut self, time: Timestamp) {
        self.0.extend_from_slice(&time.secs.to_le_bytes());
        self.u32(time.nanos);
    }
    pub(crate) fn name(&mut self, name: &Name) {
        self.u8(u8::try_from(name.as_bytes().len()).expect("names have at most 255 bytes"));
        self.0.extend_from_slice(name.as_bytes());
    }
    pub(crate) fn seal(self, key: &[u8]) -> Vec<u8> {
        self.seal_from(0, key)
    }
    /// As `seal`, for a value that begins behind others.
    pub(crate) fn seal_from(mut self, begin: usize, key: &[u8]) -> Vec<u8> {
        let sum = crc32c::crc32c_append(crc32c::crc32c(key), &self.0[begin..]);
        self.u32(sum);
        self.0
    }
}

/// Decodes a value; `None` means damage.
pub(crate) struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    /// Decodes fields without version and sum.
    pub(crate) fn of(fields: &'a [u8]) -> In<'a> {
        In(fields)
    }
    /// The next byte, which stays.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The fields of a value with a right sum.
    pub(crate) fn open(key: &[u8], value: &'a [u8]) -> Option<In<'a>> {
        In::open_any(key, value)
            .filter(|(version, _)| *version == VERSION)
            .map(|(_, fields)| fields)
    }
    /// As `open`, for any version.
    pub(crate) fn open_any(key: &[u8], value: &'a [u8]) -> Option<(u8, In<'a>)> {
        let (body, sum) = value.split_last_chunk::<4>()?;
        let right = crc32c::crc32c_append(crc32c::crc32c(key), body) == u32::from_le_bytes(*sum);
        let (version, fields) = body.split_first()?;
        right.then_some((*version, In(fields)))
    }
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        let secs = self.array().map(i64::from_le_bytes)?;
        let nanos = self.u32()?;
        Some(Timestamp::new(secs, nanos)).filter(|time| time.nanos == nanos)
    }
    pub(crate) fn name(&mut self) -> Option<Name> {
        let length = self.u8()?;
        Name::new(self.bytes(usize::from(length))?).ok()
    }
    /// Returns `value` if all bytes were decoded.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Encodes fields as a value, with version and sum.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn sealed(key: &[u8], version: u8, fields: &[u8]) -> Vec<u8> {
    let mut out = Out::with_version(fields.len(), version);
    out.0.extend_from_slice(fields);
    out.seal(key)
}

/// Whether the sum of the key and the value is right.
pub(crate) fn is_sealed(key: &[u8], value: &[u8]) -> bool {
    In::open(key, value).is_some()
}

/// Whether an intact value is a tombstone.
pub(crate) fn is_tombstone(value: &[u8]) -> bool {
    value.len() == size_of::<u8>() + size_of::<u32>()
}

/// The error for a damaged record under `key`.
pub(crate) fn damaged(what: &str, key: &[u8]) -> StoreError {
    StoreError::Damaged(format!("{what} record {}", key.escape_ascii()))
}

/// The current form of notes of changes: buckets of directories have notes of their own.
const WITH_BUCKETS: u8 = 1;

/// Encodes the note of a change.
pub(crate) fn encode_change(key: &[u8]) -> Vec<u8> {
    let mut out = Out::new(1);
    out.u8(WITH_BUCKETS);
    out.seal(key)
}

/// Whether the program that noted the change noted single buckets too; older programs did not, and
/// in a damaged note it is unknown.
pub(crate) fn is_change_with_buckets(key: &[u8], value: &[u8]) -> bool {
    In::open(key, value).is_some_and(|fields| fields.0 == [WITH_BUCKETS])
}

const NONE: u8 = 0;
const INLINE: u8 = 1;
const FILE: u8 = 2;
const PACKED: u8 = 3;
const ORIGIN: u8 = 4;
const HAS_XATTR: u8 = 1;
const HANDED: u8 = 2;
/// In this record's epoch the body file belongs only to the head, though an older epoch created it.
const OWN: u8 = 4;

pub(crate) fn encode_vnode(key: &[u8], vnode: &Vnode) -> Vec<u8> {
    let mut out = Out::new(200);
    let status = &vnode.status;
    out.u64(status.fid.unique.0);
    out.u8(status.kind as u8);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(vnode.has_xattr, HAS_XATTR)
        | flag(vnode.handed, HANDED)
        | flag(vnode.own_since > 0, OWN));
    out.u16(status.mode);
    out.u32(status.uid);
    out.u32(status.gid);
    out.u32(status.links);
    out.u64(status.size);
    out.u64(status.used);
    out.u64(status.device);
    for time in [status.accessed, status.modified, status.changed, status.created] {
        out.time(time);
    }
    out.u64(status.data_version.0);
    out.u64(status.status_version.0);
    out.u64(vnode.exclusive);
    out.u64(vnode.parent.0);
    out.u64(vnode.entries);
    out.u32(vnode.generations);
    let (place, epoch, generation) = match vnode.place {
        BodyLocation::None => (NONE, 0, 0),
        BodyLocation::Inline => (INLINE, 0, 0),
        BodyLocation::File { epoch, generation, packed: false } => (FILE, epoch, generation),
        BodyLocation::File { epoch, generation, packed: true } => (PACKED, epoch, generation),
        BodyLocation::Origin => (ORIGIN, 0, 0),
    };
    out.u8(place);
    out.u64(epoch);
    out.u32(generation);
    out.seal(key)
}

/// The vnode in a record; `None` is a tombstone.
pub(crate) fn decode_vnode(
    key: &[u8],
    volume: VolumeId,
    no: VnodeNo,
    value: &[u8],
) -> Result<Option<Vnode>> {
    let mut fields = In::open(key, value).ok_or_else(|| damaged("vnode", key))?;
    if fields.0.is_empty() {
        return Ok(None);
    }
    vnode_fields(&mut fields, volume, no, key::epoch_of(key))
        .and_then(|vnode| fields.end(vnode))
        .map(Some)
        .ok_or_else(|| damaged("vnode", key))
}

fn vnode_fields(
    fields: &mut In<'_>,
    volume: VolumeId,
    vnode: VnodeNo,
    record_epoch: u64,
) -> Option<Vnode> {
    let unique = Uniquifier(fields.u64()?);
    let kind = Kind::from_wire(fields.u8()?)?;
    let flags = fields.u8()?;
    if flags & !(HAS_XATTR | HANDED | OWN) != 0 {
        return None;
    }
    let status = Status {
        fid: Fid { volume, vnode, unique },
        kind,
        mode: fields.u16()?,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: fields.u32()?,
        gid: fields.u32()?,
        links: fields.u32()?,
        size: fields.u64()?,
        used: fields.u64()?,
        device: fields.u64()?,
        accessed: fields.time()?,
        modified: fields.time()?,
        changed: fields.time()?,
        created: fields.time()?,
        data_version: DataVersion(fields.u64()?),
        status_version: StatusVersion(fields.u64()?),
    };
    let exclusive = fields.u64()?;
    let parent = VnodeNo(fields.u64()?);
    let entries = fields.u64()?;
    let generations = fields.u32()?;
    let place = match (fields.u8()?, fields.u64()?, fields.u32()?) {
        (NONE, 0, 0) => BodyLocation::None,
        (INLINE, 0, 0) => BodyLocation::Inline,
        (FILE, epoch, generation) => BodyLocation::File { epoch, generation, packed: false },
        (PACKED, epoch, generation) => BodyLocation::File { epoch, generation, packed: true },
        (ORIGIN, 0, 0) => BodyLocation::Origin,
        _ => return None,
    };
    let has = |flag: u8| flags & flag != 0;
    let (has_xattr, handed) = (has(HAS_XATTR), has(HANDED));
    let own_since = if has(OWN) { record_epoch } else { 0 };
    Some(Vnode {
        status,
        exclusive,
        parent,
        entries,
        place,
        generations,
        own_since,
        has_xattr,
        handed,
    })
}

/// Encodes a tombstone: erased since this epoch.
pub(crate) fn tombstone(key: &[u8]) -> Vec<u8> {
    Out::new(0).seal(key)
}

pub(crate) fn encode_bucket(key: &[u8], bucket: &[BucketEntry]) -> Vec<u8> {
    let mut out = Out::new(bucket.iter().map(|entry| 19 + entry.name.as_bytes().len()).sum());
    for entry in bucket {
        out.u8(entry.index);
        out.u8(entry.target.kind as u8);
        out.u64(entry.target.vnode.0);
        out.u64(entry.target.unique.0);
        out.name(&entry.name);
    }
    out.seal(key)
}

/// The entries of a bucket, by index; a tombstone has none.
pub(crate) fn decode_bucket(key: &[u8], value: &[u8]) -> Result<Vec<BucketEntry>> {
    In::open(key, value).and_then(bucket_fields).ok_or_else(|| damaged("entry", key))
}

fn bucket_fields(mut fields: In<'_>) -> Option<Vec<BucketEntry>> {
    let mut bucket: Vec<BucketEntry> = Vec::new();
    while !fields.0.is_empty() {
        let index = fields.u8()?;
        let kind = Kind::from_wire(fields.u8()?)?;
        let target =
            EntryTarget { vnode: VnodeNo(fields.u64()?), unique: Uniquifier(fields.u64()?), kind };
        let name = fields.name()?;
        let sorted = bucket.last().is_none_or(|last| last.index < index);
        if !sorted || usize::from(index) >= BUCKET_ENTRIES_MAX {
            return None;
        }
        bucket.push(BucketEntry { index, name, target });
    }
    Some(bucket)
}

pub(crate) fn encode_sums(key: &[u8], sums: &Sums) -> Vec<u8> {
    let mut out = Out::new(size_of::<Sums>());
    for sum in sums {
        out.u32(*sum);
    }
    out.seal(key)
}

/// The sums of a group; in a tombstone all are holes.
pub(crate) fn decode_sums(key: &[u8], value: &[u8]) -> Result<Sums> {
    let mut fields = In::open(key, value).ok_or_else(|| damaged("checksum", key))?;
    let mut sums = [0; GROUP_BLOCKS as usize];
    if fields.0.is_empty() {
        return Ok(sums);
    }
    for sum in &mut sums {
        *sum = fields.u32().ok_or_else(|| damaged("checksum", key))?;
    }
    fields.end(sums).ok_or_else(|| damaged("checksum", key))
}

/// The version of sums of an encrypted tree, which only its key decrypts (`cipher.rs`).
const SEALED: u8 = 2;

pub(crate) fn encode_sealed_sums(key: &[u8], sealed: &[u8]) -> Vec<u8> {
    let mut out = Out::with_version(sealed.len(), SEALED);
    out.0.extend_from_slice(sealed);
    out.seal(key)
}

/// The encrypted part of a record of sums; `None`: a tombstone.
pub(crate) fn decode_sealed_sums<'v>(key: &[u8], value: &'v [u8]) -> Result<Option<&'v [u8]>> {
    match In::open_any(key, value) {
        Some((SEALED, fields)) => Ok(Some(fields.0)),
        Some((VERSION, fields)) if fields.0.is_empty() => Ok(None),
        _ => Err(damaged("checksum", key)),
    }
}

/// The list in plain bytes, for encryption.
pub(crate) fn sums_to_bytes(sums: &Sums) -> Vec<u8> {
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

pub(crate) fn sums_from_bytes(bytes: &[u8]) -> Option<Sums> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let sums: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    sums.try_into().ok().filter(|_| rest.is_empty())
}

/// The record of a tree's key. The first layout is of trees whose sums are not encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeKeyRecord {
    pub(crate) wrapped: Vec<u8>,
    pub(crate) seals_sums: bool,
}

impl TreeKeyRecord {
    pub(crate) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let version = if self.seals_sums { SEALED } else { VERSION };
        let mut out = Out::with_version(1 + self.wrapped.len(), version);
        out.u8(THERE);
        out.0.extend_from_slice(&self.wrapped);
        out.seal(key)
    }

    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<TreeKeyRecord> {
        let decode = || {
            let (version, mut fields) = In::open_any(key, value)?;
            let known = [VERSION, SEALED].contains(&version) && fields.u8()? == THERE;
            known.then(|| TreeKeyRecord {
                wrapped: fields.0.to_vec(),
                seals_sums: version == SEALED,
            })
        };
        decode().ok_or_else(|| damaged("key of a volume", key))
    }
}

const THERE: u8 = 1;

/// Encodes plain bytes: inline bodies and attributes.
pub(crate) fn encode_bytes(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut out = Out::new(1 + bytes.len());
    out.u8(THERE);
    out.0.extend_from_slice(bytes);
    out.seal(key)
}

/// The bytes in a record; `None` is a tombstone. Moves them without a copy.
pub(crate) fn decode_bytes(what: &str, key: &[u8], value: Vec<u8>) -> Result<Option<Bytes>> {
    let fields = In::open(key, &value).ok_or_else(|| damaged(what, key))?;
    match fields.0.first() {
        None => Ok(None),
        Some(&THERE) => {
            let end = value.len() - 4;
            Ok(Some(Bytes::from(value).slice(2..end)))
        }
        Some(_) => Err(damaged(what, key)),
    }
}

/// Encodes plain numbers: counters, and the body of an unstable mark.
pub(crate) fn encode_numbers(key: &[u8], numbers: &[u64]) -> Vec<u8> {
    let mut out = Out::new(numbers.len() * 8);
    for number in numbers {
        out.u64(*number);
    }
    out.seal(key)
}

pub(crate) fn decode_numbers<const N: usize>(key: &[u8], value: &[u8]) -> Result<[u64; N]> {
    let decode = || {
        let mut fields = In::open(key, value)?;
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = fields.u64()?;
        }
        fields.end(numbers)
    };
    decode().ok_or_else(|| damaged("number", key))
}

pub(crate) fn encode_session(key: &[u8], record: &SessionRecord) -> Vec<u8> {
    let mut out = Out::new(24 + record.extra.len());
    out.0.extend_from_slice(&record.client.0.to_le_bytes());
    out.u64(record.incarnation);
    out.0.extend_from_slice(&record.extra);
    out.seal(key)
}

pub(crate) fn decode_session(
    key: &[u8],
    session: SessionId,
    value: &[u8],
) -> Result<SessionRecord> {
    let decode = || {
        let mut fields = In::open(key, value)?;
        let client = ClientId(fields.u128()?);
        let incarnation = fields.u64()?;
        Some(SessionRecord {
            session,
            client,
            incarnation,
            extra: Bytes::copy_from_slice(fields.0),
        })
    };
    decode().ok_or_else(|| damaged("session", key))
}

pub(crate) fn encode_reply(key: &[u8], request: u64, reply: &[u8]) -> Vec<u8> {
    let mut out = Out::new(8 + reply.len());
    out.u64(request);
    out.0.extend_from_slice(reply);
    out.seal(key)
}

pub(crate) fn decode_reply(key: &[u8], slot: u32, value: &[u8]) -> Result<StoredReply> {
    let decode = || {
        let mut fields = In::open(key, value)?;
        Some(StoredReply { slot, request: fields.u64()?, reply: Bytes::copy_from_slice(fields.0) })
    };
    decode().ok_or_else(|| damaged("reply", key))
}

/// The bytes and files of a volume in the form of the engine's additions: without version and sum;
/// scrub counts them anew.
pub(crate) fn decode_usage(key: &[u8], value: &[u8]) -> Result<[i64; 2]> {
    let numbers: Option<[u8; 16]> = value.try_into().ok();
    let numbers = numbers.ok_or_else(|| damaged("usage", key))?;
    let (bytes, files) = numbers.split_at(8);
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    Ok([number(bytes), number(files)])
}
