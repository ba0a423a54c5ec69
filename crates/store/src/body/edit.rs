//! Changing a body: write, truncate, reserve, punch, zero.
//!
//! Model. Bytes go to the body's file at once, sums and size with the update. Between the two, and
//! after a crash, file and records disagree; four rules make that harmless.
//! 1. *The gate.* The update holds it until the commit, so no reader sees the state in between.
//! 2. *The mark.* Before bytes below the recorded size change, the file's unstable mark is in the
//!    log, and if the log has not been synced since and those bytes existed when the mark was made,
//!    it is synced first. So after a crash, with any prefix of the log, either the mark is there
//!    too and the blocks are accepted as found, or none of the bytes that the records describe had
//!    been changed.
//! 3. *No bytes behind the end, none in holes.* Bytes past the recorded size and in blocks without
//!    a sum do not exist. A crash or a dropped update may have left some; before the first change
//!    in this process the tail is cut off (`trimmed`), and before a hole is filled it is punched
//!    out; both synced, or a crash could bring them back.
//! 4. *The backup.* An inline body may be stable when it moves into a file whose bytes are not. Its
//!    record stays until the file is stable, and after a loss of power restores what the file lost.
//!
//! `used` is 16 KiB for each block of a file that has a sum, or the bytes of an inline one.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use types::limits::FILE_BYTES_MAX;
use types::{AllocateMode, VnodeNo};

use super::files::{NOT_LENT, damaged_block, failed, open_file, put_mark, read_exactly};
use super::update::{BodyInUpdate, NewBody, Update};
use crate::error::Result;
use crate::format::names::BodyName;
use crate::format::record::{GROUP_BLOCKS, Sums, count};
use crate::format::sums::{self, BLOCK};
use crate::media::Media;
use crate::media::body_state::Mark;
use crate::media::disk::{BodyFile, Disk};
use crate::tree::{EpochView, TreeState};
use crate::{BLOCK_BYTES, BodyLocation, INLINE_BYTES_MAX, StoreError, Vnode};

/// The most bytes that one call may reserve: bounds its batch (about 270 MB of sums at most).
const RESERVE_BYTES_MAX: u64 = 1 << 40;

/// The body of a vnode, and the update that changes it. The caller puts the vnode.
pub struct BodyEdit<'a, 's> {
    tree_state: &'a TreeState,
    /// The head, which stays while the update writes.
    pub(super) tree: Arc<EpochView>,
    pub(super) vnode: &'a mut Vnode,
    pub(super) update: &'a mut Update<'s>,
}

impl BodyEdit<'_, '_> {
    /// The caller has checked that the head takes changes.
    pub(crate) fn new<'a, 's>(
        tree_state: &'a TreeState,
        vnode: &'a mut Vnode,
        update: &'a mut Update<'s>,
    ) -> BodyEdit<'a, 's> {
        // Before the tree is read: this prevents a seal.
        update.enter(tree_state);
        BodyEdit { tree_state, tree: tree_state.head(), vnode, update }
    }

    pub(super) fn media(&self) -> &Media {
        &self.tree_state.media
    }

    /// The body in the update, which holds its gate from now on.
    pub(super) fn held(&mut self) -> &mut BodyInUpdate {
        self.update.hold(self.tree_state, self.vnode.no())
    }

    /// Holds the body's gate until the update ends.
    pub(crate) fn hold(&mut self) {
        self.held();
    }

    /// The name of the body's file.
    pub(super) fn name(&self) -> BodyName {
        self.tree.body_name(self.vnode).expect("the body is in a file")
    }

    /// Writes `data`. Readers see it after the commit. If the update is dropped after this, the
    /// written range may have either content (but is not damaged).
    ///
    /// # Errors
    /// `NoSpace`, `TooBig`, `Medium`; `Damaged` if a part of a damaged block would have to stay.
    /// After an error drop the update.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.settle()?;
        self.held();
        if self.stays_inline(end) {
            let mut bytes = self.inline_bytes()?;
            bytes.resize(bytes.len().max(end as usize), 0);
            bytes[offset as usize..end as usize].copy_from_slice(data);
            self.put_inline(bytes);
            return Ok(());
        }
        self.make_file()?;
        self.write_blocks(offset, data)
    }

    /// Cuts or grows the body to `size`.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub fn truncate(&mut self, size: u64) -> Result<()> {
        end_of(size, 0)?;
        self.settle()?;
        self.held();
        // PT-4: a file that a kernel has stays, in place.
        let stays = self.vnode.handed && matches!(self.vnode.place, BodyLocation::File { .. });
        if size == 0 && !stays {
            self.drop_body();
            self.charge(0);
            self.vnode.place = BodyLocation::None;
            self.vnode.status.size = 0;
            return Ok(());
        }
        if self.stays_inline(0) && size <= INLINE_BYTES_MAX {
            let mut bytes = self.inline_bytes()?;
            bytes.resize(size as usize, 0);
            self.put_inline(bytes);
            return Ok(());
        }
        self.make_file()?;
        if size >= self.vnode.status.size && size > 0 { self.grow(size) } else { self.shrink(size) }
    }

    /// Reserves, zeroes or punches a range. Reserved blocks count as data, of zeros.
    ///
    /// # Errors
    /// As [`BodyEdit::write`]; `TooBig` for more than 1 TiB at a time, except when punching.
    pub fn allocate_range(&mut self, offset: u64, length: u64, mode: AllocateMode) -> Result<()> {
        let end = end_of(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        self.settle()?;
        self.held();
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroExtend);
        let zeroes = !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
        let reserves = mode != AllocateMode::PunchHole;
        if reserves && length > RESERVE_BYTES_MAX {
            return Err(StoreError::TooBig);
        }
        if self.stays_inline(if reserves { end } else { 0 }) {
            let mut bytes = self.inline_bytes()?;
            if grows {
                bytes.resize(bytes.len().max(end as usize), 0);
            }
            if zeroes {
                let length = bytes.len();
                bytes[length.min(offset as usize)..length.min(end as usize)].fill(0);
            }
            self.put_inline(bytes);
            return Ok(());
        }
        self.make_file()?;
        if zeroes {
            self.punch(offset, end)?;
        }
        if reserves {
            self.reserve(offset, end)?;
        }
        if grows && end > self.vnode.status.size { self.grow(end) } else { Ok(()) }
    }

    /// Removes the body's records and file with the update; the caller handles the vnode.
    pub(super) fn drop_body(&mut self) {
        drop_body(self.tree_state, &self.tree, self.vnode, self.update);
    }

    /// Whether the body is in no file and needs none if it ends at `end`.
    fn stays_inline(&self, end: u64) -> bool {
        !self.vnode.place.is_file() && end <= INLINE_BYTES_MAX
    }

    /// The bytes of a body that is in no file.
    fn inline_bytes(&self) -> Result<Vec<u8>> {
        if self.vnode.place != BodyLocation::Inline {
            return Ok(Vec::new());
        }
        let no = self.vnode.no();
        let bytes = match self.update.inline(no) {
            Some(bytes) => bytes.clone(),
            None => self.tree.inline(no)?.map(Vec::from),
        };
        let (size, fid) = (self.vnode.status.size, self.vnode.status.fid);
        let whole = bytes.filter(|bytes| bytes.len() as u64 == size);
        whole.ok_or_else(|| StoreError::Damaged(format!("inline body of {fid}")))
    }

    fn put_inline(&mut self, bytes: Vec<u8>) {
        self.vnode.status.size = bytes.len() as u64;
        self.charge(self.vnode.status.size);
        self.vnode.place = if bytes.is_empty() { BodyLocation::None } else { BodyLocation::Inline };
        self.update.set_inline(self.vnode.no(), (!bytes.is_empty()).then_some(bytes));
    }

    /// Moves the body into a file, if it is in none.
    pub(crate) fn make_file(&mut self) -> Result<()> {
        if self.vnode.place.is_file() {
            return self.own_file();
        }
        let bytes = self.inline_bytes()?;
        self.media().room_for(BLOCK_BYTES)?;
        self.new_file(|disk, name| disk.create(name).map_err(failed("new body")))?;
        if !bytes.is_empty() {
            self.held().gate.set_backup(true);
            if self.tree.is_layered() {
                // The record may belong to an older epoch.
                self.update.set_inline(self.vnode.no(), Some(bytes.clone()));
            }
            self.write_blocks(0, &bytes)?;
        }
        Ok(())
    }

    /// Gives the vnode, which is in no file, an empty body in a new file, which `make` creates.
    pub(super) fn new_file(
        &mut self,
        make: impl FnOnce(&dyn Disk, BodyName) -> Result<Arc<dyn BodyFile>>,
    ) -> Result<()> {
        let generation = self.vnode.generations + 1;
        let place = BodyLocation::File { epoch: self.tree.epoch, generation, packed: false };
        let name = BodyName::at(self.tree.id, self.vnode.no(), place).expect("place is a file");
        let (media, scope) = (&*self.tree_state.media, self.update.scope());
        let held = self.update.hold(self.tree_state, self.vnode.no());
        let earlier = held.gate.mark();
        let former = held.made.take().map_or_else(|| held.gate.former(), |made| made.former);
        held.made = Some(NewBody { name, former });
        let batch = put_mark(media, scope, name, &NOT_LENT)?;
        // Otherwise a restart would not find the file without a record.
        media.write_out()?;
        held.gate.set_mark(Mark { name, batch, size: 0 });
        let file = make(&*media.disk, name)?;
        held.gate.begin_file(name, file);
        if let Some(earlier) = earlier {
            self.update.unmark(earlier.name);
        }
        (self.vnode.place, self.vnode.generations) = (place, generation);
        self.vnode.status.size = 0;
        self.charge(0);
        Ok(())
    }

    fn write_blocks(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        let file = self.begin()?;
        let mut sums = self.groups(offset, end)?;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let new = blocks.clone().filter(|block| sums.of(*block) == 0).count() as u64;
        if new > 0 {
            self.media().room_for(new * BLOCK_BYTES)?;
        }
        self.clear_strays(&*file, blocks.clone(), &sums)?;
        let overwrites = blocks.clone().any(|block| sums.of(block) != 0).then_some(offset);
        self.mark(overwrites)?;
        // The sums of the new content, before any write: a damaged block causes the error here.
        let size = self.vnode.status.size.max(end);
        for block in blocks {
            let start = block * BLOCK_BYTES;
            let block_end = (start + BLOCK_BYTES).min(size);
            let sum = if offset <= start && block_end <= end {
                sums::of_block(&data[(start - offset) as usize..(block_end - offset) as usize])
            } else {
                let mut bytes = self.old_block(&*file, block, sums.of(block))?;
                let from = offset.max(start);
                let to = end.min(start + BLOCK_BYTES);
                bytes[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
                sums::of_block(&bytes)
            };
            sums.set(block, sum);
        }
        self.held().touch();
        file.write_at(offset, data).map_err(failed("write of a body"))?;
        sums.put(self.vnode.no(), self.update);
        self.vnode.status.size = size;
        self.charge_blocks(new as i64);
        Ok(())
    }

    /// The current content of a block, filled up with zeros; checked.
    fn old_block(&mut self, file: &dyn BodyFile, block: u64, sum: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; BLOCK];
        let start = block * BLOCK_BYTES;
        let there = self.vnode.status.size.saturating_sub(start).min(BLOCK_BYTES) as usize;
        if sum == 0 {
            return Ok(bytes);
        }
        read_exactly(file, start, &mut bytes[..there])?;
        if !self.held().gate.is_doubtful() && sums::of_block(&bytes) != sum {
            return Err(damaged_block(self.vnode, block));
        }
        Ok(bytes)
    }

    /// Rule 3: punches out bytes in holes of the range, stable before the holes are filled.
    fn clear_strays(
        &mut self,
        file: &dyn BodyFile,
        blocks: Range<u64>,
        sums: &Groups,
    ) -> Result<()> {
        if self.held().gate.is_lent() {
            // The strays were cleared when the body was lent; bytes there now are a kernel's.
            return Ok(());
        }
        let end = blocks.end.min(self.vnode.status.size.div_ceil(BLOCK_BYTES));
        let mut found = false;
        let mut next = blocks.start;
        while let Some(hole) = (next..end).find(|block| sums.of(*block) == 0) {
            next = (hole..end).find(|block| sums.of(*block) != 0).unwrap_or(end);
            let (from, length) = (hole * BLOCK_BYTES, (next - hole) * BLOCK_BYTES);
            if file.has_data(from, length).map_err(failed("seek"))? {
                file.punch(from, length).map_err(failed("punch"))?;
                found = true;
            }
        }
        if found { self.media().sync_disk(|| file.sync()) } else { Ok(()) }
    }

    /// As `clear_strays`, in all of the body.
    pub(super) fn clear_all_strays(&mut self, file: &dyn BodyFile) -> Result<()> {
        let size = self.vnode.status.size;
        if size == 0 {
            return Ok(());
        }
        let sums = self.groups(0, size)?;
        self.clear_strays(file, 0..size.div_ceil(BLOCK_BYTES), &sums)
    }

    /// Removes the records behind `size` of a shorter body; does not touch the file. Sums of lent
    /// bodies mean nothing.
    pub(super) fn cut_records(&mut self, size: u64) -> Result<()> {
        let edge = size.div_ceil(BLOCK_BYTES);
        let group = edge / GROUP_BLOCKS;
        let no = self.vnode.no();
        let mut sums = self.update.sums(&self.tree, no, group)?;
        let tail = &mut sums[(edge % GROUP_BLOCKS) as usize..];
        let mut gone = tail.iter().filter(|sum| **sum != 0).count() as u64;
        tail.fill(0);
        gone += self.update.cut_sums(&self.tree, no, group + 1)?;
        self.update.set_sums(no, group, sums);
        self.charge_blocks(-(gone as i64));
        Ok(())
    }

    /// Sets the bytes that the vnode is charged for.
    fn charge(&mut self, used: u64) {
        self.update.bytes_delta += used as i64 - self.vnode.status.used as i64;
        self.vnode.status.used = used;
    }

    /// Charges for so many blocks more, or fewer.
    pub(super) fn charge_blocks(&mut self, blocks: i64) {
        let bytes = blocks * BLOCK_BYTES as i64;
        let used = self.vnode.status.used;
        debug_assert!(used as i64 >= -bytes, "ST-2: a body is charged for what its blocks use");
        self.charge(used.saturating_add_signed(bytes));
    }

    fn grow(&mut self, size: u64) -> Result<()> {
        if size > self.vnode.status.size {
            // Needs no mark: after a crash the file is longer or shorter than the records say, and
            // either is harmless.
            let file = self.begin()?;
            let held = self.held();
            held.touch();
            // A kernel may extend a lent file at this moment.
            let grown = if held.gate.is_lent() { file.extend(size) } else { file.set_length(size) };
            grown.map_err(failed("truncate of a body"))?;
            self.vnode.status.size = size;
        }
        Ok(())
    }

    fn shrink(&mut self, size: u64) -> Result<()> {
        let file = self.begin()?;
        let no = self.vnode.no();
        let edge = size / BLOCK_BYTES;
        let group = edge / GROUP_BLOCKS;
        let mut sums = self.groups(size, size + 1)?;
        self.mark(Some(size))?;
        let mut gone = 0;
        for block in edge..(group + 1) * GROUP_BLOCKS {
            let sum = sums.of(block);
            let new = if block > edge || size.is_multiple_of(BLOCK_BYTES) || sum == 0 {
                0
            } else {
                let bytes = self.old_block(&*file, block, sum)?;
                sums::of_block(&bytes[..(size % BLOCK_BYTES) as usize])
            };
            gone += u64::from(sum != 0 && new == 0);
            sums.set(block, new);
        }
        gone += self.update.cut_sums(&self.tree, no, group + 1)?;
        self.held().touch();
        file.set_length(size).map_err(failed("truncate of a body"))?;
        sums.put(no, self.update);
        self.vnode.status.size = size;
        self.charge_blocks(-(gone as i64));
        Ok(())
    }

    /// Makes holes of whole blocks and zeroes the rest of the range.
    fn punch(&mut self, offset: u64, end: u64) -> Result<()> {
        let size = self.vnode.status.size;
        let first = offset.next_multiple_of(BLOCK_BYTES);
        // The block with the end of the body counts as whole if the range reaches that end.
        let last =
            if end >= size { end.next_multiple_of(BLOCK_BYTES) } else { end - end % BLOCK_BYTES };
        if first >= last {
            return self.zero_within(offset, end);
        }
        self.zero_within(offset, first.min(end))?;
        self.zero_within(last.min(end), end)?;
        let file = self.begin()?;
        let no = self.vnode.no();
        let (from, to) = (first / BLOCK_BYTES, last / BLOCK_BYTES);
        let groups = self.pending_groups(from / GROUP_BLOCKS, to.div_ceil(GROUP_BLOCKS))?;
        self.mark(Some(first).filter(|_| !groups.is_empty()))?;
        let mut gone = 0;
        for (group, mut sums) in groups {
            for at in 0..GROUP_BLOCKS {
                if (from..to).contains(&(group * GROUP_BLOCKS + at)) {
                    gone += i64::from(std::mem::take(&mut sums[at as usize]) != 0);
                }
            }
            self.update.set_sums(no, group, sums);
        }
        self.held().touch();
        // Behind the end the file has only reserved room, which may stay.
        let below = last.min(size.next_multiple_of(BLOCK_BYTES)).saturating_sub(first);
        if below > 0 {
            file.punch(first, below).map_err(failed("punch"))?;
        }
        self.charge_blocks(-gone);
        Ok(())
    }

    /// Groups of `from..to` that are not all holes, as the update leaves them.
    fn pending_groups(&self, from: u64, to: u64) -> Result<Vec<(u64, Sums)>> {
        let no = self.vnode.no();
        let mut found = self.update.pending_groups(no, from, to);
        self.tree.each_group(no, from, &mut |group, _| {
            if group >= to {
                return ControlFlow::Break(());
            }
            found.insert(group);
            ControlFlow::Continue(())
        })?;
        let mut groups = Vec::new();
        for group in found {
            let sums = self.update.sums(&self.tree, no, group)?;
            if count(&sums) > 0 {
                groups.push((group, sums));
            }
        }
        Ok(groups)
    }

    /// Zeroes a range that covers no whole block; holes stay, the body does not grow.
    fn zero_within(&mut self, offset: u64, end: u64) -> Result<()> {
        let mut at = offset;
        let end = end.min(self.vnode.status.size);
        while at < end {
            let next = end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let block = at / BLOCK_BYTES;
            let sums = self.update.sums(&self.tree, self.vnode.no(), block / GROUP_BLOCKS)?;
            if sums[(block % GROUP_BLOCKS) as usize] != 0 {
                self.write_blocks(at, &[0; BLOCK][..(next - at) as usize])?;
            }
            at = next;
        }
        Ok(())
    }

    /// Turns holes in the range into blocks of zeros with room on the disk.
    fn reserve(&mut self, offset: u64, end: u64) -> Result<()> {
        let file = self.begin()?;
        let mut sums = self.groups(offset, end)?;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let new = blocks.clone().filter(|block| sums.of(*block) == 0).count() as u64;
        if new == 0 {
            return Ok(());
        }
        self.media().room_for(new * BLOCK_BYTES)?;
        self.clear_strays(&*file, blocks.clone(), &sums)?;
        self.mark(None)?;
        self.held().touch();
        let mut next = blocks.start;
        while next < blocks.end {
            let Some(hole) = (next..blocks.end).find(|block| sums.of(*block) == 0) else { break };
            next = (hole..blocks.end).find(|block| sums.of(*block) != 0).unwrap_or(blocks.end);
            let (from, length) = (hole * BLOCK_BYTES, (next - hole) * BLOCK_BYTES);
            file.reserve(from, length).map_err(failed("fallocate"))?;
            (hole..next).for_each(|block| sums.set(block, *sums::OF_ZEROS));
        }
        sums.put(self.vnode.no(), self.update);
        self.charge_blocks(new as i64);
        Ok(())
    }

    /// The body's file, without bytes behind its end.
    pub(super) fn begin(&mut self) -> Result<Arc<dyn BodyFile>> {
        assert!(self.tree.owns(self.vnode), "VO-1: a file that a sealed epoch shows stays");
        let size = self.vnode.status.size;
        let held = self.update.hold(self.tree_state, self.vnode.no());
        let file = open_file(&self.tree, &held.gate, self.vnode)?;
        if !held.gate.is_trimmed() && !held.gate.is_lent() {
            if file.length().map_err(failed("stat of a body"))? > size {
                file.set_length(size).map_err(failed("truncate of a body"))?;
                self.tree_state.media.sync_disk(|| file.sync())?;
            }
            held.gate.set_trimmed(true);
        }
        Ok(file)
    }

    /// The body's file as it is.
    pub(super) fn open(&mut self) -> Result<Arc<dyn BodyFile>> {
        let held = self.update.hold(self.tree_state, self.vnode.no());
        open_file(&self.tree, &held.gate, self.vnode)
    }

    /// Rule 2: the mark is in the log, and on disk if existing bytes from `overwrites` on change.
    pub(super) fn mark(&mut self, overwrites: Option<u64>) -> Result<()> {
        let (name, size) = (self.name(), self.vnode.status.size);
        let (media, scope) = (&*self.tree_state.media, self.update.scope());
        let gate = &mut self.held().gate;
        let mark = match gate.mark() {
            Some(mark) if mark.name == name => mark,
            _ => {
                let mark = Mark { name, batch: put_mark(media, scope, name, &NOT_LENT)?, size };
                gate.set_mark(mark);
                mark
            }
        };
        if overwrites.is_some_and(|from| from < mark.size) && !media.is_synced(mark.batch) {
            media.sync()?;
        }
        Ok(())
    }

    /// The sums of the groups that a range touches.
    fn groups(&self, offset: u64, end: u64) -> Result<Groups> {
        let first = offset / BLOCK_BYTES / GROUP_BLOCKS;
        let past = end.div_ceil(BLOCK_BYTES).div_ceil(GROUP_BLOCKS);
        let of = |group| self.update.sums(&self.tree, self.vnode.no(), group);
        Ok(Groups { first, groups: (first..past).map(of).collect::<Result<_>>()? })
    }
}

/// Removes a body's records and file with the update; the caller handles the vnode.
pub(crate) fn drop_body(
    tree_state: &TreeState,
    tree: &EpochView,
    vnode: &Vnode,
    update: &mut Update<'_>,
) {
    let no = vnode.no();
    let has_backup = update.hold(tree_state, no).gate.has_backup();
    match vnode.place {
        BodyLocation::None => {}
        BodyLocation::Inline => update.set_inline(no, None),
        // The file belongs to the origin.
        BodyLocation::Origin => update.forget_sums(no, 0),
        BodyLocation::File { .. } => {
            if has_backup {
                update.set_inline(no, None);
            }
            update.forget_sums(no, 0);
            // A file that a sealed epoch shows is removed with that epoch.
            if tree.alone_names(vnode) {
                update.discard(tree.body_name(vnode).expect("it is in a file"));
            }
        }
    }
}

/// The end of a range.
fn end_of(offset: u64, length: u64) -> Result<u64> {
    offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX).ok_or(StoreError::TooBig)
}

/// The sums of the groups that a range touches.
struct Groups {
    first: u64,
    groups: Vec<Sums>,
}

impl Groups {
    fn of(&self, block: u64) -> u32 {
        self.groups[(block / GROUP_BLOCKS - self.first) as usize][(block % GROUP_BLOCKS) as usize]
    }

    fn set(&mut self, block: u64, sum: u32) {
        self.groups[(block / GROUP_BLOCKS - self.first) as usize]
            [(block % GROUP_BLOCKS) as usize] = sum;
    }

    fn put(self, no: VnodeNo, update: &mut Update<'_>) {
        for (group, sums) in (self.first..).zip(self.groups) {
            update.set_sums(no, group, sums);
        }
    }
}
