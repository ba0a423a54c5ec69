//! Reads the differences between a sealed epoch and an older one.
//!
//! A full stream finds vnodes by a scan of their records; an increment by the notes of changes in
//! the epochs between (`c` records): of vnodes, and of single buckets of directories. No state is
//! kept between two parts.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use types::{Kind, StreamCursor, VnodeNo};

use super::codec::{BodyForm, CHUNK_BLOCKS, PartOut, Run, StreamHead};
use crate::error::Result;
use crate::format::key;
use crate::format::record::{self, BucketEntry, GROUP_BLOCKS, Sums, count};
use crate::format::sums::BLOCK;
use crate::media::disk::CHUNK_BYTES;
use crate::media::engine::{Engine, prefix_end};
use crate::tree::EpochView;
use crate::volume::Volume;
use crate::{BLOCK_BYTES, BodyLocation, BodyReader, StoreError, Vnode};

/// The number of vnodes that one search returns.
const VNODES_AT_ONCE: usize = 256;
/// The number of buckets that one search returns; the most in an item.
const BUCKETS_AT_ONCE: usize = 64;

/// The stages of a vnode, in their order.
pub(super) mod stage {
    pub(in crate::stream) const VNODE: u8 = 0;
    /// The position counts attributes.
    pub(in crate::stream) const XATTRS: u8 = 1;
    /// The position is a hash.
    pub(in crate::stream) const ENTRIES: u8 = 2;
    /// The position is a block.
    pub(in crate::stream) const BODY: u8 = 3;
}

/// The next part of what a volume that shows a sealed epoch has and the epoch `since` of
/// its tree had not (0: everything), of about `bytes_max` bytes (at least
/// [`super::PART_BYTES_MIN`]).
///
/// # Errors
/// `Misuse` for a read-write volume, or if no volume shows `since`; `Damaged`; `Medium`.
pub fn changes_part(
    volume: &Volume,
    since: u64,
    from: StreamCursor,
    bytes_max: usize,
) -> Result<Bytes> {
    part(volume, since, from, bytes_max, false)
}

/// The same, with chunks of packed bodies as stored on the disk, for receivers that support
/// them.
///
/// # Errors
/// As [`changes_part`].
pub fn packed_changes_part(
    volume: &Volume,
    since: u64,
    from: StreamCursor,
    bytes_max: usize,
) -> Result<Bytes> {
    part(volume, since, from, bytes_max, true)
}

fn part(
    volume: &Volume,
    since: u64,
    from: StreamCursor,
    bytes_max: usize,
    packs: bool,
) -> Result<Bytes> {
    let (head, before) = stream_head(volume, since)?;
    let epochs = change_epochs(volume, since)?;
    let out = PartOut::new(&head, from, bytes_max, packs);
    let mut sender = Sender { volume, now: volume.tree(), before, epochs, out, packs };
    let to = sender.run(from)?;
    Ok(sender.out.end(to))
}

fn stream_head(volume: &Volume, since: u64) -> Result<(StreamHead, Option<EpochView>)> {
    if volume.is_writable() {
        return Err(StoreError::Misuse("only a sealed epoch can be sent"));
    }
    let header = volume.tree_state.header.lock().stored.clone();
    let epoch = volume.epoch();
    let shown = header.sealed.iter().any(|sealed| sealed.epoch == since);
    if since != 0 && (!shown || since >= epoch) {
        return Err(StoreError::Misuse("no volume shows the epoch to start from"));
    }
    let head = StreamHead {
        tree: volume.tree_state.id,
        epoch,
        since,
        hash_key: header.hash_key,
        next_slot: header.next_slot,
        usage: volume.usage(),
        encrypted: volume.is_encrypted(),
    };
    Ok((head, (since != 0).then(|| volume.tree().at(since))))
}

/// The epochs with changes behind `since`, up to the shown one.
fn change_epochs(volume: &Volume, since: u64) -> Result<Vec<u64>> {
    let mut epochs = Vec::new();
    if since == 0 {
        return Ok(epochs);
    }
    let (tree, engine) = (volume.tree_state.id, &volume.tree_state.media.engine);
    let end = key::changes(tree, volume.epoch() + 1);
    let mut next = since + 1;
    loop {
        let mut found = None;
        engine.scan(&key::changes(tree, next), &end, &mut |key, _| {
            found = key::number_at(key, 1);
            ControlFlow::Break(())
        })?;
        let Some(epoch) = found else { return Ok(epochs) };
        epochs.push(epoch);
        next = epoch + 1;
    }
}

struct Sender<'a> {
    volume: &'a Volume,
    now: Arc<EpochView>,
    /// `None`: the stream is full.
    before: Option<EpochView>,
    epochs: Vec<u64>,
    out: PartOut,
    /// Packed chunks are sent as stored.
    packs: bool,
}

impl Sender<'_> {
    /// Fills the part; returns the cursor of the next one.
    fn run(&mut self, from: StreamCursor) -> Result<StreamCursor> {
        let mut next = from.vnode;
        if from.stage != stage::VNODE {
            if let Some(full) = self.vnode(from)? {
                return Ok(full);
            }
            next = VnodeNo(next.0 + 1);
        }
        loop {
            let vnodes = self.next_vnodes(next)?;
            let Some(last) = vnodes.last().copied() else { return Ok(StreamCursor::END) };
            for no in vnodes {
                let cursor = StreamCursor { vnode: no, ..StreamCursor::START };
                if self.out.is_full() {
                    return Ok(cursor);
                }
                if let Some(full) = self.vnode(cursor)? {
                    return Ok(full);
                }
            }
            next = VnodeNo(last.0 + 1);
        }
    }

    /// Some numbers of vnodes from this one on, in their order: those with any record, or those
    /// that were changed.
    fn next_vnodes(&self, from: VnodeNo) -> Result<Vec<VnodeNo>> {
        let mut found: BTreeSet<VnodeNo> = BTreeSet::new();
        let mut each = |from: &[u8], end: &[u8], at: usize| {
            let (mut count, mut last) = (0, None);
            self.now.media.engine.scan(from, end, &mut |key, _| {
                let no = key::number_at(key, at).map(VnodeNo);
                if let Some(no) = no.filter(|_| no != last) {
                    found.insert(no);
                    count += 1;
                }
                last = no;
                if count < VNODES_AT_ONCE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })
        };
        let tree = self.now.id;
        for epoch in &self.epochs {
            each(&key::change(tree, *epoch, from), &key::changes(tree, *epoch + 1), 2)?;
        }
        if self.before.is_none() {
            self.now.each_vnode_no(from, &mut |no| {
                found.insert(no);
                if found.len() < VNODES_AT_ONCE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        }
        Ok(found.into_iter().take(VNODES_AT_ONCE).collect())
    }

    /// Writes a vnode from the cursor on; returns the cursor to continue at if not all of it fits.
    fn vnode(&mut self, from: StreamCursor) -> Result<Option<StreamCursor>> {
        let no = from.vnode;
        let Some(vnode) = self.now.vnode(no)? else {
            if self.before.is_some() {
                self.out.gone(no);
            }
            return Ok(None);
        };
        let before = match &self.before {
            Some(before) => before.vnode(no)?,
            None => None,
        };
        let position = |of: u8| if from.stage == of { from.position } else { 0 };
        let stops = |stage: u8, position: Option<u64>| {
            position.map(|position| StreamCursor { vnode: no, stage, position })
        };
        if from.stage == stage::VNODE {
            self.head_of(&vnode)?;
        }
        if from.stage <= stage::XATTRS
            && let Some(full) = stops(stage::XATTRS, self.xattrs(&vnode, position(stage::XATTRS))?)
        {
            return Ok(Some(full));
        }
        if from.stage <= stage::ENTRIES
            && vnode.status.kind == Kind::Directory
            && let Some(full) =
                stops(stage::ENTRIES, self.entries(no, before.is_some(), position(stage::ENTRIES))?)
        {
            return Ok(Some(full));
        }
        if vnode.place.is_file()
            && let Some(full) =
                stops(stage::BODY, self.body(&vnode, before.as_ref(), position(stage::BODY))?)
        {
            return Ok(Some(full));
        }
        self.out.whole(vnode.status.used);
        Ok(None)
    }

    fn head_of(&mut self, vnode: &Vnode) -> Result<()> {
        match vnode.place {
            BodyLocation::None => self.out.vnode(vnode, BodyForm::None),
            BodyLocation::File { .. } | BodyLocation::Origin => {
                self.out.vnode(vnode, BodyForm::File);
            }
            BodyLocation::Inline => {
                let bytes = self.now.inline(vnode.no())?;
                let whole = bytes.filter(|bytes| bytes.len() as u64 == vnode.status.size);
                let damaged =
                    || StoreError::Damaged(format!("inline body of {}", vnode.status.fid));
                self.out.vnode(vnode, BodyForm::Inline(&whole.ok_or_else(damaged)?));
            }
        }
        Ok(())
    }

    /// Writes attributes from the given one on; returns the first that does not fit.
    fn xattrs(&mut self, vnode: &Vnode, from: u64) -> Result<Option<u64>> {
        if !vnode.has_xattr {
            return Ok(None);
        }
        for (at, (name, _)) in (0..).zip(self.now.xattrs(vnode.no())?).skip(from as usize) {
            if self.out.is_full() {
                return Ok(Some(at));
            }
            if let Some(value) = self.now.xattr(vnode.no(), &name)? {
                self.out.xattr(&name, &value);
            }
        }
        Ok(None)
    }

    /// Writes buckets with hashes from the given one on: all of them, or the changed ones of a
    /// directory that existed before. Returns the first hash that does not fit.
    fn entries(&mut self, dir: VnodeNo, was_there: bool, from: u64) -> Result<Option<u64>> {
        let rest = !was_there || !self.has_noted_buckets(dir)?;
        let mut next = from;
        loop {
            if self.out.is_full() {
                return Ok(Some(next));
            }
            let buckets =
                if rest { self.all_buckets(dir, next)? } else { self.changed_buckets(dir, next)? };
            let until = if buckets.len() < BUCKETS_AT_ONCE {
                u64::MAX
            } else {
                buckets[buckets.len() - 1].0 + 1
            };
            if rest || !buckets.is_empty() {
                // The next item takes what does not fit.
                let fit = fitting(&buckets, self.out.room());
                let until = if fit < buckets.len() { buckets[fit].0 } else { until };
                self.out.buckets(next, until, rest, &buckets[..fit]);
                next = until;
            } else {
                next = u64::MAX;
            }
            if next == u64::MAX {
                return Ok(None);
            }
        }
    }

    /// Whether every change of the directory noted single buckets; older programs noted only the
    /// directory.
    fn has_noted_buckets(&self, dir: VnodeNo) -> Result<bool> {
        for epoch in &self.epochs {
            let key = key::change(self.now.id, *epoch, dir);
            if let Some(value) = self.now.media.engine.get(&key)?
                && !record::is_change_with_buckets(&key, &value)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn all_buckets(&self, dir: VnodeNo, from: u64) -> Result<Vec<(u64, Vec<BucketEntry>)>> {
        let mut found = Vec::new();
        self.now.each_bucket(dir, from, &mut |hash, bucket| {
            if !bucket.is_empty() {
                found.push((hash, bucket));
            }
            if found.len() < BUCKETS_AT_ONCE {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(found)
    }

    fn changed_buckets(&self, dir: VnodeNo, from: u64) -> Result<Vec<(u64, Vec<BucketEntry>)>> {
        let mut hashes = BTreeSet::new();
        for epoch in &self.epochs {
            let prefix = key::change(self.now.id, *epoch, dir);
            let mut count = 0;
            self.now.media.engine.scan(
                &prefix.number(from),
                &prefix_end(&prefix),
                &mut |key, _| {
                    hashes.extend(key::number_at(key, 3));
                    count += 1;
                    if count < BUCKETS_AT_ONCE {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                },
            )?;
        }
        let hashes = hashes.into_iter().take(BUCKETS_AT_ONCE);
        hashes.map(|hash| Ok((hash, self.now.bucket(dir, hash)?))).collect()
    }

    /// Writes the body's blocks from the given one on; returns the first that does not fit.
    fn body(&mut self, vnode: &Vnode, before: Option<&Vnode>, from: u64) -> Result<Option<u64>> {
        let no = vnode.no();
        let before = before.filter(|before| before.place.is_file());
        if before.is_some_and(|before| before.place == vnode.place) {
            self.out.blocks(Run::Same, from, u64::MAX - from);
            return Ok(None);
        }
        let reader = self.volume.reader(no)?.ok_or(StoreError::Gone(self.volume.id(), no))?;
        let mut next = from;
        while let Some((group, sums)) = self.next_group(no, next / GROUP_BLOCKS)? {
            if self.out.is_full() {
                return Ok(Some(next));
            }
            let start = group * GROUP_BLOCKS;
            if start > next {
                self.out.blocks(Run::Hole, next, start - next);
                next = start;
            }
            let old = match (&self.before, before) {
                (Some(tree), Some(_)) => Some(tree.sums(no, group)?),
                _ => None,
            };
            let end = start + GROUP_BLOCKS;
            next = self.group(&reader, next..end, &sums, old.as_ref())?;
            if next < end {
                return Ok(Some(next));
            }
        }
        self.out.blocks(Run::Hole, next, u64::MAX - next);
        Ok(None)
    }

    /// The next group that is not all holes.
    fn next_group(&self, no: VnodeNo, from: u64) -> Result<Option<(u64, Sums)>> {
        let mut found = None;
        self.now.each_group(no, from, &mut |group, sums| {
            if count(&sums) == 0 {
                return ControlFlow::Continue(());
            }
            found = Some((group, sums));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Writes blocks of one group; returns the first that does not fit.
    fn group(
        &mut self,
        reader: &BodyReader,
        blocks: std::ops::Range<u64>,
        sums: &Sums,
        old: Option<&Sums>,
    ) -> Result<u64> {
        let size = reader.vnode().status.size;
        let mut next = blocks.start;
        while next < blocks.end {
            let at = (next % GROUP_BLOCKS) as usize;
            let inside = next * BLOCK_BYTES < size;
            if sums[at] == 0 {
                self.out.blocks(Run::Hole, next, 1);
            } else if !inside {
                self.out.blocks(Run::Zeros, next, 1);
            } else if old.is_some_and(|old| old[at] == sums[at]) {
                self.out.blocks(Run::Same, next, 1);
            } else {
                let is_new = |block: &u64| {
                    let at = (*block % GROUP_BLOCKS) as usize;
                    let same = sums[at] == 0 || old.is_some_and(|old| old[at] == sums[at]);
                    !same && *block * BLOCK_BYTES < size
                };
                // Room for what precedes the bytes, in the worst case of every block.
                let room = (self.out.room() / (BLOCK + 32)) as u64;
                let count = (next..blocks.end).take_while(is_new).count() as u64;
                let count = count.min(room);
                if count == 0 {
                    return Ok(next);
                }
                self.data(reader, next, count)?;
                next += count;
                continue;
            }
            next += 1;
        }
        Ok(next)
    }

    fn data(&mut self, reader: &BodyReader, first: u64, count: u64) -> Result<()> {
        let bytes = reader.read(first * BLOCK_BYTES, (count * BLOCK_BYTES) as usize)?;
        let mut begun = None;
        let mut packed_until = 0;
        for (at, block) in bytes.chunks(BLOCK).enumerate() {
            if at < packed_until {
                continue;
            }
            if let Some((frame, blocks)) =
                self.packed(reader, first + at as u64, &bytes[at * BLOCK..])?
            {
                if let Some(begun) = begun.take() {
                    self.out.data(first + begun as u64, &bytes[begun * BLOCK..at * BLOCK]);
                }
                self.out.packed(first + at as u64, &frame);
                packed_until = at + blocks;
                continue;
            }
            if block.iter().any(|byte| *byte != 0) {
                begun.get_or_insert(at);
                continue;
            }
            if let Some(begun) = begun.take() {
                self.out.data(first + begun as u64, &bytes[begun * BLOCK..at * BLOCK]);
            }
            self.out.blocks(Run::Zeros, first + at as u64, 1);
        }
        if let Some(begun) = begun {
            self.out.data(first + begun as u64, &bytes[begun * BLOCK..]);
        }
        Ok(())
    }

    /// The frame and blocks of the chunk with which these bytes, from a block of a body on, begin,
    /// if they contain all of it. The frame was compared with the bytes, and those with their sums.
    fn packed(
        &self,
        reader: &BodyReader,
        block: u64,
        bytes: &[u8],
    ) -> Result<Option<(Bytes, usize)>> {
        let left = reader.vnode().status.size.saturating_sub(block * BLOCK_BYTES);
        let length = left.min(CHUNK_BYTES) as usize;
        if !self.packs || !block.is_multiple_of(CHUNK_BLOCKS) || bytes.len() < length {
            return Ok(None);
        }
        let frame = reader.packed_chunk(block, &bytes[..length])?;
        Ok(frame.map(|frame| (frame, length.div_ceil(BLOCK))))
    }
}

/// How many of the buckets fit in one item of so many bytes.
fn fitting(buckets: &[(u64, Vec<BucketEntry>)], room: usize) -> usize {
    let mut left = room.saturating_sub(64);
    let bytes = |bucket: &[BucketEntry]| -> usize {
        bucket.iter().map(|entry| 19 + entry.name.as_bytes().len()).sum()
    };
    let fits = |bucket: &&(u64, Vec<BucketEntry>)| {
        let bytes = 9 + bytes(&bucket.1);
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    buckets.iter().take_while(fits).count()
}
