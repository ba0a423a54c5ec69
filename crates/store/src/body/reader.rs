//! Reading a body: gate, records, bytes, sums; in this order, so that they are consistent.

use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use types::{PackedRun, SeekWhat, VnodeNo};

use super::files::{damaged_block, damaged_body, failed, open_file, read_exactly};
use super::origin_body::FileOwner;
use crate::error::Result;
use crate::format::record::{GROUP_BLOCKS, Sums};
use crate::format::sums::{self, BLOCK};
use crate::media::disk::{BodyFile, Frames, unpack_frame};
use crate::media::gates::ReadGate;
use crate::tree::EpochView;
use crate::{BLOCK_BYTES, BodyLocation, Vnode};

/// A vnode and its body at one moment: no change of the body commits while this exists. Drop it
/// soon; the thread that holds it must not change the vnode or create another reader of it.
pub struct BodyReader {
    tree: Arc<EpochView>,
    vnode: Vnode,
    gate: ReadGate,
    /// The owner of the file, if the body is the origin's.
    file_owner: Option<FileOwner>,
}

impl BodyReader {
    /// The vnode and its body, which `gate` keeps consistent with each other.
    pub(crate) fn new(
        gate: ReadGate,
        tree: Arc<EpochView>,
        no: VnodeNo,
    ) -> Result<Option<BodyReader>> {
        let Some(vnode) = tree.vnode(no)? else { return Ok(None) };
        let file_owner = if vnode.place == BodyLocation::Origin {
            Some(FileOwner::find(&tree, no)?)
        } else {
            None
        };
        Ok(Some(BodyReader { tree, vnode, gate, file_owner }))
    }

    /// The vnode that the body belongs to.
    pub fn vnode(&self) -> &Vnode {
        &self.vnode
    }

    /// Up to `length` bytes, fewer only at the end of the body.
    ///
    /// # Errors
    /// `Damaged` if a block fails its sum (ST-3).
    pub fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let size = self.vnode.status.size;
        let end = offset.saturating_add(length as u64).min(size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        match self.vnode.place {
            BodyLocation::None => Err(damaged_body(&self.vnode, "has a size but no body")),
            BodyLocation::Inline => Ok(self.inline()?.slice(offset as usize..end as usize)),
            BodyLocation::File { .. } | BodyLocation::Origin => self.read_file(offset, end),
        }
    }

    fn inline(&self) -> Result<Bytes> {
        let bytes = self.tree.inline(self.vnode.no())?;
        let whole = bytes.filter(|bytes| bytes.len() as u64 == self.vnode.status.size);
        whole.ok_or_else(|| damaged_body(&self.vnode, "has no inline body of its size"))
    }

    fn read_file(&self, offset: u64, end: u64) -> Result<Bytes> {
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let base = blocks.start * BLOCK_BYTES;
        let length = ((blocks.end - blocks.start) * BLOCK_BYTES) as usize;
        let mut buffer = types::buffer::take_written(length);
        let mut first = blocks.start;
        while first < blocks.end {
            let group = first / GROUP_BLOCKS;
            let last = blocks.end.min((group + 1) * GROUP_BLOCKS);
            let sums = self.tree.sums(self.vnode.no(), group)?;
            let part = &mut buffer[((first - blocks.start) * BLOCK_BYTES) as usize..];
            self.read_blocks(first..last, &sums, part)?;
            first = last;
        }
        Ok(types::buffer::freeze(buffer).slice((offset - base) as usize..(end - base) as usize))
    }

    /// Reads and checks blocks of one group into `buffer`, which begins with the first one.
    /// Overwrites every byte.
    fn read_blocks(&self, blocks: Range<u64>, sums: &Sums, buffer: &mut [u8]) -> Result<()> {
        let sum_of = |block: u64| sums[(block % GROUP_BLOCKS) as usize];
        let mut next = blocks.start;
        let is_hole = |block: u64| sum_of(block) == 0 && !self.is_lent();
        while next < blocks.end {
            if is_hole(next) {
                let at = ((next - blocks.start) * BLOCK_BYTES) as usize;
                buffer[at..at + BLOCK].fill(0);
                next += 1;
                continue;
            }
            let run_end = (next..blocks.end).find(|block| is_hole(*block)).unwrap_or(blocks.end);
            let from = ((next - blocks.start) * BLOCK_BYTES) as usize;
            let to = ((run_end - blocks.start) * BLOCK_BYTES) as usize;
            let run = &mut buffer[from..to];
            self.fill(next * BLOCK_BYTES, run)?;
            for (block, bytes) in (next..run_end).zip(run.chunks(BLOCK)) {
                if !self.is_suspect() && sums::of_block(bytes) != sum_of(block) {
                    return Err(damaged_block(&self.vnode, block));
                }
            }
            next = run_end;
        }
        Ok(())
    }

    /// Reads what the file has below the body's end; the rest is zeros.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted =
            self.vnode.status.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let had = read_exactly(&*self.file()?, offset, &mut buffer[..wanted])?;
        buffer[had..].fill(0);
        Ok(())
    }

    /// The chunk of a packed body that begins at a block, as stored on the disk, if there is one
    /// and it unpacks to these bytes.
    ///
    /// # Errors
    /// `Medium`.
    pub(crate) fn packed_chunk(&self, block: u64, bytes: &[u8]) -> Result<Option<Bytes>> {
        let at = block * BLOCK_BYTES;
        if !at.is_multiple_of(PackedRun::CHUNK_BYTES) {
            return Ok(None);
        }
        let chunk = at / PackedRun::CHUNK_BYTES;
        let frame = self
            .frames(chunk..chunk + 1, u64::MAX)?
            .map(|frames| frames.bytes)
            .filter(|frame| !frame.is_empty());
        let mut unpacked = vec![0; bytes.len()];
        Ok(frame.filter(|frame| unpack_frame(frame, &mut unpacked).is_ok() && unpacked == bytes))
    }

    fn frames(&self, chunks: Range<u64>, below: u64) -> Result<Option<Frames>> {
        self.file()?.frames(chunks, below).map_err(failed("read of a body"))
    }

    /// The chunks of a packed body that a read of `length` bytes from `offset` on touches, if they
    /// are shorter than that. Their content is not checked: the reader that unpacks them compares
    /// it with the sums.
    ///
    /// # Errors
    /// As every reading method, without errors of the content.
    pub fn read_packed(&self, offset: u64, length: u32) -> Result<Option<PackedRun>> {
        let size = self.vnode.status.size;
        let end = offset.saturating_add(length.into()).min(size);
        let may_be = matches!(
            self.vnode.place,
            BodyLocation::File { packed: true, .. } | BodyLocation::Origin
        );
        if !may_be
            || offset >= end
            || self.is_suspect()
            || self.file()?.length().is_ok_and(|there| there != size)
        {
            return Ok(None);
        }
        let chunks = offset / PackedRun::CHUNK_BYTES..end.div_ceil(PackedRun::CHUNK_BYTES);
        let (start, stop) =
            (chunks.start * PackedRun::CHUNK_BYTES, size.min(chunks.end * PackedRun::CHUNK_BYTES));
        let Some(frames) = self.frames(chunks, end - offset)? else { return Ok(None) };
        let sums = self.sums(start / BLOCK_BYTES, (stop - start).div_ceil(BLOCK_BYTES) as u32)?;
        let run = PackedRun {
            offset: start,
            length: (stop - start) as u32,
            frames: frames.lengths,
            sums,
            bytes: frames.bytes,
        };
        Ok(Some(run).filter(PackedRun::is_whole))
    }

    pub(crate) fn file(&self) -> Result<Arc<dyn BodyFile>> {
        match &self.file_owner {
            Some(file_owner) => file_owner.file(),
            None => open_file(&self.tree, &self.gate, &self.vnode),
        }
    }

    /// The next data or hole at or after `offset`; `None` if `offset` is at or past the end, or no
    /// data follows. The end counts as a hole. Inline bodies are all data.
    ///
    /// # Errors
    /// As every reading method.
    pub fn seek(&self, offset: u64, what: SeekWhat) -> Result<Option<u64>> {
        let size = self.vnode.status.size;
        if offset >= size {
            return Ok(None);
        }
        if !self.vnode.place.is_file() {
            return Ok(Some(if what == SeekWhat::Data { offset } else { size }));
        }
        if self.is_lent() {
            return self.seek_lent(offset, what);
        }
        let first = offset / BLOCK_BYTES;
        let block = match what {
            SeekWhat::Data => self.next_data(first)?,
            SeekWhat::Hole => Some(self.next_hole(first)?),
        };
        let found = block.map(|block| block.saturating_mul(BLOCK_BYTES).max(offset));
        Ok(match what {
            SeekWhat::Data => found.filter(|found| *found < size),
            SeekWhat::Hole => found.map(|found| found.min(size)),
        })
    }

    /// As `seek`, for a lent body: the file decides.
    fn seek_lent(&self, offset: u64, what: SeekWhat) -> Result<Option<u64>> {
        let size = self.vnode.status.size;
        let run = self.file()?.next_data(offset).map_err(failed("seek"))?;
        Ok(match (what, run) {
            (SeekWhat::Data, run) => run.map(|run| run.start).filter(|start| *start < size),
            (SeekWhat::Hole, Some(run)) if run.start == offset => Some(run.end.min(size)),
            (SeekWhat::Hole, _) => Some(offset),
        })
    }

    fn next_data(&self, first: u64) -> Result<Option<u64>> {
        let mut found = None;
        self.tree.each_group(self.vnode.no(), first / GROUP_BLOCKS, &mut |group, sums| {
            found = (0..GROUP_BLOCKS)
                .map(|at| group * GROUP_BLOCKS + at)
                .find(|block| *block >= first && sums[(block % GROUP_BLOCKS) as usize] != 0);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    fn next_hole(&self, first: u64) -> Result<u64> {
        let mut next = first;
        self.tree.each_group(self.vnode.no(), first / GROUP_BLOCKS, &mut |group, sums| {
            while next / GROUP_BLOCKS == group && sums[(next % GROUP_BLOCKS) as usize] != 0 {
                next += 1;
            }
            // Continue with the following group only if this one was data to its end.
            if next == (group + 1) * GROUP_BLOCKS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(next)
    }

    /// Sums of up to `count` blocks from block `first` on; 0 is a hole. Inline and lent bodies have
    /// no sums.
    ///
    /// # Errors
    /// As every reading method.
    pub fn sums(&self, first: u64, count: u32) -> Result<Vec<u32>> {
        let blocks = self.vnode.status.size.div_ceil(BLOCK_BYTES);
        let end = first.saturating_add(u64::from(count)).min(blocks);
        if !self.vnode.place.is_file() || first >= end || self.is_lent() {
            return Ok(Vec::new());
        }
        let mut found = Vec::with_capacity((end - first) as usize);
        for group in first / GROUP_BLOCKS..end.div_ceil(GROUP_BLOCKS) {
            let sums = self.tree.sums(self.vnode.no(), group)?;
            let from = first.max(group * GROUP_BLOCKS) - group * GROUP_BLOCKS;
            let to = end.min((group + 1) * GROUP_BLOCKS) - group * GROUP_BLOCKS;
            found.extend_from_slice(&sums[from as usize..to as usize]);
        }
        Ok(found)
    }

    /// How many of `count` blocks from block `first` on are charged, including reserved blocks
    /// behind the end.
    ///
    /// # Errors
    /// As every reading method.
    pub fn charged(&self, first: u64, count: u64) -> Result<u64> {
        if !self.vnode.place.is_file() {
            return Ok(0);
        }
        let wanted = first..first.saturating_add(count);
        let mut charged = 0;
        self.tree.each_group(self.vnode.no(), first / GROUP_BLOCKS, &mut |group, sums| {
            let start = group * GROUP_BLOCKS;
            if start >= wanted.end {
                return ControlFlow::Break(());
            }
            let blocks = (start..).zip(sums.iter());
            charged +=
                blocks.filter(|(block, sum)| **sum != 0 && wanted.contains(block)).count() as u64;
            ControlFlow::Continue(())
        })?;
        Ok(charged)
    }

    /// Whether blocks may disagree with their sums, because of a crash or of a body loan.
    pub fn is_suspect(&self) -> bool {
        self.tree.is_head() && self.file_owner.is_none() && self.gate.is_doubtful()
    }

    /// Whether kernels write into the body. They never write into one of a sealed epoch; the gate,
    /// which all epochs share, describes the head's body.
    pub(crate) fn is_lent(&self) -> bool {
        self.tree.is_head() && self.file_owner.is_none() && self.gate.is_lent()
    }

    /// A read-only descriptor of the body file; `None` if the body is inline, the disk has no
    /// descriptors, or the body is a sealed epoch's or the origin's: the head of that tree may
    /// continue in the file while the readers of the epoch get a copy.
    ///
    /// # Errors
    /// `Damaged` if the file is missing.
    pub fn open_body(&self) -> Result<Option<OwnedFd>> {
        if !matches!(self.vnode.place, BodyLocation::File { .. }) || !self.tree.is_head() {
            return Ok(None);
        }
        self.file()?.descriptor().map_err(failed("second descriptor of a body"))
    }
}
