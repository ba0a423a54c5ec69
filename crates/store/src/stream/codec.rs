//! The form of a part: its stream, its first and last cursor, and items; with a version and a
//! checksum over all of it.
//!
//! Items are in the order in which they are applied: a vnode, then its attributes, entries and
//! body, then the mark that it is whole. A part may end between any two items, and the next one
//! continues there. Numbers are little-endian.

use bytes::Bytes;
use types::{
    DataVersion, Fid, Kind, Name, Status, StatusVersion, StreamCursor, Uniquifier, VnodeNo,
    VolumeId,
};

#[cfg(any(test, feature = "fuzzing"))]
use crate::format::record;
use crate::format::record::{BucketEntry, In, Out};
use crate::format::vnode::{BodyLocation, EntryTarget, Vnode};
use crate::media::disk::CHUNK_BYTES;
use crate::{BLOCK_BYTES, BUCKET_ENTRIES_MAX, INLINE_BYTES_MAX, StoreError, Usage};

/// The smallest size limit of a part: the longest item and the head fit.
pub const PART_BYTES_MIN: usize = 128 << 10;

/// The version of the layout below.
const VERSION: u8 = 1;
/// The same with packed chunks, for receivers that ask for it.
const VERSION_PACKED: u8 = 2;
/// Part of every checksum, so that no other data passes for a part.
const MAGIC: &[u8] = b"rialto stream";
/// Version, head, cursors.
const HEAD_BYTES: usize = 1 + 72 + 2 * CURSOR_BYTES;
const CURSOR_BYTES: usize = 17;
/// The longest item that cannot be split: an attribute.
const ITEM_BYTES_MAX: usize = 66 << 10;
const _: () =
    assert!(HEAD_BYTES + ITEM_BYTES_MAX + INLINE_BYTES_MAX as usize + 1024 < PART_BYTES_MIN);

/// The identity and properties of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamHead {
    /// The number of the tree at the source.
    pub tree: VolumeId,
    /// The epoch that the stream transfers.
    pub epoch: u64,
    /// The epoch that the receiver must have; 0: none.
    pub since: u64,
    /// The key of the hash of names, the same in all copies of a tree.
    pub hash_key: u128,
    /// Slots below this may be in use at the source.
    pub next_slot: u64,
    /// The usage of the epoch.
    pub usage: Usage,
    /// Bodies are encrypted at the source, so they must be at the receiver. The stream is not
    /// encrypted.
    pub encrypted: bool,
}

/// A part whose checksum is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPart {
    /// The stream of the part.
    pub head: StreamHead,
    /// The cursor at which it begins.
    pub from: StreamCursor,
    /// The cursor at which the next one begins.
    pub to: StreamCursor,
    items: Bytes,
    packed: bool,
}

/// The place of a body, with the bytes of a short one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyForm<'a> {
    None,
    Inline(&'a [u8]),
    File,
}

/// Blocks of a body that the part does not contain as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// The same as in the epoch `since`.
    Same,
    Hole,
    /// Room is reserved; the blocks read as zeros.
    Zeros,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// The vnode of the following items. Its place and the derived fields have no meaning; `size`
    /// and `used` are the final ones.
    Vnode(Box<Vnode>, BodyForm<'a>),
    /// There is no such vnode, or no longer.
    Gone(VnodeNo),
    Xattr(&'a [u8], &'a [u8]),
    /// The attribute was removed; only in entries of feeds, which do not name the others.
    XattrGone(&'a [u8]),
    /// Buckets of a directory. `rest`: there are no others from the hash `from` to `until`,
    /// exclusive.
    Buckets {
        from: u64,
        until: u64,
        rest: bool,
        buckets: Vec<(u64, Vec<BucketEntry>)>,
    },
    /// The first block and the number of blocks.
    Blocks(Run, u64, u64),
    /// The first block and its bytes.
    Data(u64, &'a [u8]),
    /// The first block and a chunk of a packed body, as stored on the disk.
    Packed(u64, &'a [u8]),
    /// The vnode is whole, and uses so many bytes.
    Whole(u64),
}

mod tag {
    pub(super) const VNODE: u8 = 1;
    pub(super) const GONE: u8 = 2;
    pub(super) const XATTR: u8 = 3;
    pub(super) const BUCKETS: u8 = 4;
    pub(super) const SAME: u8 = 5;
    pub(super) const HOLE: u8 = 6;
    pub(super) const ZEROS: u8 = 7;
    pub(super) const DATA: u8 = 8;
    pub(super) const WHOLE: u8 = 9;
    pub(super) const PACKED: u8 = 10;
    pub(super) const XATTR_GONE: u8 = 11;
}

/// The blocks of a chunk.
pub(super) const CHUNK_BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES;

const HAS_XATTR: u8 = 1;
const IN_FILE: u8 = 2;
const IS_INLINE: u8 = 4;

/// Items under construction.
pub(crate) struct ItemsOut {
    pub(crate) out: Out,
    /// The last item, if it is a run: its position, its kind, and the end of its blocks.
    run: Option<(usize, Run, u64)>,
}

/// A part under construction.
pub(super) struct PartOut {
    items: ItemsOut,
    bytes_max: usize,
}

impl std::ops::Deref for PartOut {
    type Target = ItemsOut;

    fn deref(&self) -> &ItemsOut {
        &self.items
    }
}

impl std::ops::DerefMut for PartOut {
    fn deref_mut(&mut self) -> &mut ItemsOut {
        &mut self.items
    }
}

impl PartOut {
    /// `packed`: the part may contain packed chunks.
    pub(super) fn new(
        head: &StreamHead,
        from: StreamCursor,
        bytes_max: usize,
        packed: bool,
    ) -> PartOut {
        let mut out =
            Out::with_version(PART_BYTES_MIN, if packed { VERSION_PACKED } else { VERSION });
        put_head(&mut out, head);
        put_cursor(&mut out, from);
        put_cursor(&mut out, from);
        PartOut { items: ItemsOut::after(out), bytes_max: bytes_max.max(PART_BYTES_MIN) }
    }

    /// The bytes that may be added.
    pub(super) fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.out.0.len() + size_of::<u32>())
    }

    /// Whether the longest item may no longer fit.
    pub(super) fn is_full(&self) -> bool {
        self.room() < ITEM_BYTES_MAX
    }

    pub(super) fn end(mut self, to: StreamCursor) -> Bytes {
        let mut cursor = Out(Vec::with_capacity(CURSOR_BYTES));
        put_cursor(&mut cursor, to);
        self.items.out.0[HEAD_BYTES - CURSOR_BYTES..HEAD_BYTES].copy_from_slice(&cursor.0);
        Bytes::from(self.items.out.seal(MAGIC))
    }
}

impl ItemsOut {
    /// Items behind what `out` has.
    pub(crate) fn after(out: Out) -> ItemsOut {
        ItemsOut { out, run: None }
    }

    pub(crate) fn vnode(&mut self, vnode: &Vnode, form: BodyForm<'_>) {
        self.run = None;
        put_vnode(&mut self.out, vnode, form);
    }

    pub(crate) fn gone(&mut self, no: VnodeNo) {
        self.run = None;
        self.out.u8(tag::GONE);
        self.out.u64(no.0);
    }

    pub(crate) fn xattr(&mut self, name: &[u8], value: &[u8]) {
        self.run = None;
        self.out.u8(tag::XATTR);
        put_bytes(&mut self.out, name);
        put_bytes(&mut self.out, value);
    }

    pub(crate) fn xattr_gone(&mut self, name: &[u8]) {
        self.run = None;
        self.out.u8(tag::XATTR_GONE);
        put_bytes(&mut self.out, name);
    }

    pub(crate) fn buckets(
        &mut self,
        from: u64,
        until: u64,
        rest: bool,
        buckets: &[(u64, Vec<BucketEntry>)],
    ) {
        self.run = None;
        self.out.u8(tag::BUCKETS);
        self.out.u64(from);
        self.out.u64(until);
        self.out.u8(u8::from(rest));
        self.out.u32(buckets.len() as u32);
        for (hash, entries) in buckets {
            self.out.u64(*hash);
            self.out.u8(entries.len() as u8);
            for entry in entries {
                self.out.u8(entry.index);
                self.out.u8(entry.target.kind as u8);
                self.out.u64(entry.target.vnode.0);
                self.out.u64(entry.target.unique.0);
                self.out.name(&entry.name);
            }
        }
    }

    /// Adds blocks; extends the last run if they continue it.
    pub(crate) fn blocks(&mut self, run: Run, first: u64, count: u64) {
        if let Some((at, last, end)) = &mut self.run
            && (*last, *end) == (run, first)
        {
            let counted = *at + 1 + size_of::<u64>();
            let begun =
                u64::from_le_bytes(self.out.0[*at + 1..counted].try_into().expect("8 bytes"));
            *end = first + count;
            self.out.0[counted..counted + size_of::<u64>()]
                .copy_from_slice(&(*end - begun).to_le_bytes());
            return;
        }
        self.run = Some((self.out.0.len(), run, first + count));
        self.out.u8(match run {
            Run::Same => tag::SAME,
            Run::Hole => tag::HOLE,
            Run::Zeros => tag::ZEROS,
        });
        self.out.u64(first);
        self.out.u64(count);
    }

    pub(crate) fn data(&mut self, first: u64, data: &[u8]) {
        self.run = None;
        self.out.u8(tag::DATA);
        self.out.u64(first);
        put_bytes(&mut self.out, data);
    }

    pub(crate) fn packed(&mut self, first: u64, frame: &[u8]) {
        self.run = None;
        self.out.u8(tag::PACKED);
        self.out.u64(first);
        put_bytes(&mut self.out, frame);
    }

    pub(crate) fn whole(&mut self, used: u64) {
        self.run = None;
        self.out.u8(tag::WHOLE);
        self.out.u64(used);
    }
}

impl StreamPart {
    /// Decodes a part without its items.
    ///
    /// # Errors
    /// `NoStream` if it is damaged, cut off, of a newer version, or not a part.
    pub fn open(bytes: &Bytes) -> Result<StreamPart, StoreError> {
        let Some((version, mut fields)) = In::open_any(MAGIC, bytes) else {
            return Err(StoreError::NoStream(
                "a part is damaged, cut off, or not a part of a stream",
            ));
        };
        if !(VERSION..=VERSION_PACKED).contains(&version) {
            return Err(StoreError::NoStream(
                "a part has a form that this program does not support",
            ));
        }
        let mut head = || {
            let head = get_head(&mut fields)?;
            Some((head, get_cursor(&mut fields)?, get_cursor(&mut fields)?))
        };
        let (head, from, to) =
            head().filter(|(_, from, to)| from <= to).ok_or(StoreError::NoStream(MALFORMED))?;
        let items = bytes.slice(HEAD_BYTES..bytes.len() - size_of::<u32>());
        Ok(StreamPart { head, from, to, items, packed: version == VERSION_PACKED })
    }

    /// The decoded items.
    pub(super) fn items(&self) -> impl Iterator<Item = Result<Item<'_>, StoreError>> {
        let mut rest = Some(In::of(&self.items));
        std::iter::from_fn(move || {
            let fields = rest.as_mut().filter(|fields| !fields.is_empty())?;
            let item = get_item(fields).filter(|item| match item {
                Item::Packed(..) => self.packed,
                Item::XattrGone(_) => false,
                _ => true,
            });
            if item.is_none() {
                rest = None;
            }
            Some(item.ok_or(StoreError::NoStream(MALFORMED)))
        })
    }

    /// The length of the part in bytes.
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.items.len() + size_of::<u32>()
    }

    /// Decodes all items to check them.
    ///
    /// # Errors
    /// As [`StreamPart::open`].
    pub fn check(&self) -> Result<(), StoreError> {
        self.items().try_for_each(|item| item.map(drop))
    }
}

const MALFORMED: &str = "a part is malformed";

pub(super) fn put_head(out: &mut Out, head: &StreamHead) {
    out.u64(head.tree.0);
    out.u64(head.epoch);
    out.u64(head.since);
    out.0.extend_from_slice(&head.hash_key.to_le_bytes());
    out.u64(head.next_slot);
    out.u64(head.usage.bytes);
    out.u64(head.usage.files);
    // The rest is reserved for later layouts.
    out.u64(u64::from(head.encrypted));
}

pub(super) fn get_head(from: &mut In<'_>) -> Option<StreamHead> {
    let mut head = StreamHead {
        tree: VolumeId(from.u64()?),
        epoch: from.u64()?,
        since: from.u64()?,
        hash_key: from.u128()?,
        next_slot: from.u64()?,
        usage: Usage { bytes: from.u64()?, files: from.u64()? },
        encrypted: false,
    };
    let flags = from.u64()?;
    head.encrypted = flags == 1;
    let epochs = head.since < head.epoch && head.epoch < u64::MAX;
    (flags <= 1 && head.tree.0 != 0 && head.next_slot > 0 && epochs).then_some(head)
}

pub(super) fn put_cursor(out: &mut Out, cursor: StreamCursor) {
    out.u64(cursor.vnode.0);
    out.u8(cursor.stage);
    out.u64(cursor.position);
}

pub(super) fn get_cursor(from: &mut In<'_>) -> Option<StreamCursor> {
    Some(StreamCursor { vnode: VnodeNo(from.u64()?), stage: from.u8()?, position: from.u64()? })
}

pub(crate) fn put_bytes(out: &mut Out, bytes: &[u8]) {
    out.u32(u32::try_from(bytes.len()).expect("items are short"));
    out.0.extend_from_slice(bytes);
}

pub(crate) fn get_bytes<'a>(from: &mut In<'a>) -> Option<&'a [u8]> {
    let length = from.u32()?;
    from.bytes(length as usize)
}

fn put_vnode(out: &mut Out, vnode: &Vnode, form: BodyForm<'_>) {
    let status = &vnode.status;
    out.u8(tag::VNODE);
    out.u64(status.fid.vnode.0);
    out.u64(status.fid.unique.0);
    out.u8(status.kind as u8);
    let form_flag = match form {
        BodyForm::None => 0,
        BodyForm::Inline(_) => IS_INLINE,
        BodyForm::File => IN_FILE,
    };
    out.u8(form_flag | if vnode.has_xattr { HAS_XATTR } else { 0 });
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
    if let BodyForm::Inline(bytes) = form {
        put_bytes(out, bytes);
    }
}

fn get_vnode<'a>(from: &mut In<'a>) -> Option<(Vnode, BodyForm<'a>)> {
    let (vnode, unique) = (VnodeNo(from.u64()?), Uniquifier(from.u64()?));
    let (kind, flags) = (Kind::from_wire(from.u8()?)?, from.u8()?);
    let status = Status {
        fid: Fid { volume: VolumeId(0), vnode, unique },
        kind,
        mode: from.u16()?,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: from.u32()?,
        gid: from.u32()?,
        links: from.u32()?,
        size: from.u64()?,
        used: from.u64()?,
        device: from.u64()?,
        accessed: from.time()?,
        modified: from.time()?,
        changed: from.time()?,
        created: from.time()?,
        data_version: DataVersion(from.u64()?),
        status_version: StatusVersion(from.u64()?),
    };
    let (exclusive, parent, entries) = (from.u64()?, VnodeNo(from.u64()?), from.u64()?);
    let has_xattr = flags & HAS_XATTR != 0;
    let form = match flags & !HAS_XATTR {
        0 => BodyForm::None,
        IN_FILE => BodyForm::File,
        IS_INLINE => BodyForm::Inline(get_bytes(from)?),
        _ => return None,
    };
    let body_fits = match form {
        BodyForm::Inline(bytes) => {
            status.size == bytes.len() as u64 && (1..=INLINE_BYTES_MAX).contains(&status.size)
        }
        BodyForm::None => kind == Kind::Directory || status.size == 0,
        BodyForm::File => kind == Kind::File && status.size <= types::limits::FILE_BYTES_MAX,
    };
    let is_good = body_fits && vnode.0 > 0 && vnode.is_directory() == (kind == Kind::Directory);
    let vnode = Vnode {
        status,
        exclusive,
        parent,
        entries,
        place: BodyLocation::None,
        generations: 0,
        own_since: 0,
        has_xattr,
        handed: false,
    };
    is_good.then_some((vnode, form))
}

pub(crate) fn get_item<'a>(from: &mut In<'a>) -> Option<Item<'a>> {
    Some(match from.u8()? {
        tag::VNODE => {
            let (vnode, form) = get_vnode(from)?;
            Item::Vnode(Box::new(vnode), form)
        }
        tag::GONE => Item::Gone(VnodeNo(from.u64()?)),
        tag::XATTR => {
            let (name, value) = (get_bytes(from)?, get_bytes(from)?);
            let fits = (1..=types::limits::XATTR_NAME_BYTES_MAX).contains(&name.len())
                && value.len() <= types::limits::XATTR_VALUE_BYTES_MAX
                && !name.contains(&0);
            fits.then_some(Item::Xattr(name, value))?
        }
        tag::XATTR_GONE => Item::XattrGone(get_bytes(from)?),
        tag::BUCKETS => get_buckets(from)?,
        tag::SAME => get_run(from, Run::Same)?,
        tag::HOLE => get_run(from, Run::Hole)?,
        tag::ZEROS => get_run(from, Run::Zeros)?,
        tag::DATA => {
            let (first, data) = (from.u64()?, get_bytes(from)?);
            (!data.is_empty()).then_some(Item::Data(first, data))?
        }
        tag::PACKED => {
            let (first, frame) = (from.u64()?, get_bytes(from)?);
            let fits = !frame.is_empty() && first.is_multiple_of(CHUNK_BLOCKS);
            fits.then_some(Item::Packed(first, frame))?
        }
        tag::WHOLE => Item::Whole(from.u64()?),
        _ => return None,
    })
}

fn get_run<'a>(from: &mut In<'a>, run: Run) -> Option<Item<'a>> {
    let (first, count) = (from.u64()?, from.u64()?);
    (count > 0 && first.checked_add(count).is_some()).then_some(Item::Blocks(run, first, count))
}

fn get_buckets<'a>(from: &mut In<'a>) -> Option<Item<'a>> {
    let (begin, until) = (from.u64()?, from.u64()?);
    let rest = match from.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut buckets: Vec<(u64, Vec<BucketEntry>)> = Vec::new();
    for _ in 0..from.u32()? {
        let hash = from.u64()?;
        let rises = buckets.last().is_none_or(|(last, _)| *last < hash);
        if !rises || !(begin..until).contains(&hash) || hash & 0xf != 0 || hash >> 62 != 0 {
            return None;
        }
        buckets.push((hash, get_bucket(from)?));
    }
    Some(Item::Buckets { from: begin, until, rest, buckets })
}

fn get_bucket(from: &mut In<'_>) -> Option<Vec<BucketEntry>> {
    let mut bucket: Vec<BucketEntry> = Vec::new();
    for _ in 0..from.u8()? {
        let index = from.u8()?;
        let kind = Kind::from_wire(from.u8()?)?;
        let target =
            EntryTarget { vnode: VnodeNo(from.u64()?), unique: Uniquifier(from.u64()?), kind };
        let name: Name = from.name()?;
        let rises = bucket.last().is_none_or(|last| last.index < index);
        if !rises || usize::from(index) >= BUCKET_ENTRIES_MAX {
            return None;
        }
        bucket.push(BucketEntry { index, name, target });
    }
    Some(bucket)
}

/// Encodes fields as a part, with version and checksum.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn sealed(fields: &[u8]) -> Bytes {
    Bytes::from(record::sealed(MAGIC, VERSION_PACKED, fields))
}

/// Encodes the decoded part again; `None`: decoding refused it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn rewritten(bytes: &Bytes) -> Option<Bytes> {
    let part = StreamPart::open(bytes).ok()?;
    let mut out = PartOut::new(&part.head, part.from, usize::MAX, part.packed);
    for item in part.items() {
        match item.ok()? {
            Item::Vnode(vnode, form) => out.vnode(&vnode, form),
            Item::Gone(no) => out.gone(no),
            Item::Xattr(name, value) => out.xattr(name, value),
            Item::XattrGone(_) => return None,
            Item::Buckets { from, until, rest, buckets } => {
                out.buckets(from, until, rest, &buckets);
            }
            Item::Blocks(run, first, count) => {
                // Keeps a run in two pieces if it was in two.
                out.run = None;
                out.blocks(run, first, count);
            }
            Item::Data(first, data) => out.data(first, data),
            Item::Packed(first, frame) => out.packed(first, frame),
            Item::Whole(used) => out.whole(used),
        }
    }
    Some(out.end(part.to))
}
