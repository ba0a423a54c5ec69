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

use crate::bodies::Mark;
use crate::disk::{BodyFile, BodyName, Disk};
use crate::engine::Batch;
use crate::media::Media;
use crate::reader::{body_name, damaged_block, open_file, read_exactly};
use crate::record::{self, GROUP_BLOCKS, Sums};
use crate::sums::{self, BLOCK};
use crate::update::{NewBody, count, unstable_key};
use crate::volume::Result;
use crate::{BLOCK_BYTES, BodyLocation, INLINE_BYTES_MAX, StoreError, Update, Vnode, Volume};

/// The most bytes that one call may reserve: bounds its batch (about 270 MB of sums at most).
const RESERVE_BYTES_MAX: u64 = 1 << 40;

impl Volume {
    /// Writes `data`. Readers see it after the commit. If the update is dropped after this, the
    /// written range may have either content (but is not damaged).
    ///
    /// # Errors
    /// `NoSpace`, `TooBig`, `Medium`; `Damaged` if a part of a damaged block would have to stay.
    /// After an error drop the update.
    pub fn write(
        &self,
        vnode: &mut Vnode,
        offset: u64,
        data: &[u8],
        update: &mut Update,
    ) -> Result<()> {
        self.writable()?;
        let end = end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.settle_lent(vnode, update)?;
        update.hold(&self.tree_state, vnode.no());
        if self.stays_inline(vnode, end) {
            let mut bytes = self.inline_bytes(vnode, update)?;
            bytes.resize(bytes.len().max(end as usize), 0);
            bytes[offset as usize..end as usize].copy_from_slice(data);
            self.put_inline(vnode, bytes, update);
            return Ok(());
        }
        self.make_file(vnode, update)?;
        self.write_blocks(vnode, offset, data, update)
    }

    /// Sets the target of a new symbolic link.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn set_target(&self, vnode: &mut Vnode, target: &[u8], update: &mut Update) -> Result<()> {
        self.write(vnode, 0, target, update)
    }

    /// Cuts or grows the body to `size`.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn truncate(&self, vnode: &mut Vnode, size: u64, update: &mut Update) -> Result<()> {
        self.writable()?;
        end_of(size, 0)?;
        self.settle_lent(vnode, update)?;
        update.hold(&self.tree_state, vnode.no());
        // PT-4: a file that a kernel has stays, in place.
        let stays = vnode.handed && matches!(vnode.place, BodyLocation::File { .. });
        if size == 0 && !stays {
            self.drop_body(vnode, update);
            charge(vnode, update, 0);
            vnode.place = BodyLocation::None;
            vnode.status.size = 0;
            return Ok(());
        }
        if self.stays_inline(vnode, 0) && size <= INLINE_BYTES_MAX {
            let mut bytes = self.inline_bytes(vnode, update)?;
            bytes.resize(size as usize, 0);
            self.put_inline(vnode, bytes, update);
            return Ok(());
        }
        self.make_file(vnode, update)?;
        if size >= vnode.status.size && size > 0 {
            self.grow(vnode, size, update)
        } else {
            self.shrink(vnode, size, update)
        }
    }

    /// Reserves, zeroes or punches a range. Reserved blocks count as data, of zeros.
    ///
    /// # Errors
    /// As [`Volume::write`]; `TooBig` for more than 1 TiB at a time, except when punching.
    pub fn allocate_range(
        &self,
        vnode: &mut Vnode,
        offset: u64,
        length: u64,
        mode: AllocateMode,
        update: &mut Update,
    ) -> Result<()> {
        self.writable()?;
        let end = end_of(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        self.settle_lent(vnode, update)?;
        update.hold(&self.tree_state, vnode.no());
        let grows = matches!(mode, AllocateMode::Extend | AllocateMode::ZeroExtend);
        let zeroes = !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
        let reserves = mode != AllocateMode::PunchHole;
        if reserves && length > RESERVE_BYTES_MAX {
            return Err(StoreError::TooBig);
        }
        if self.stays_inline(vnode, if reserves { end } else { 0 }) {
            let mut bytes = self.inline_bytes(vnode, update)?;
            if grows {
                bytes.resize(bytes.len().max(end as usize), 0);
            }
            if zeroes {
                let length = bytes.len();
                bytes[length.min(offset as usize)..length.min(end as usize)].fill(0);
            }
            self.put_inline(vnode, bytes, update);
            return Ok(());
        }
        self.make_file(vnode, update)?;
        if zeroes {
            self.punch(vnode, offset, end, update)?;
        }
        if reserves {
            self.reserve(vnode, offset, end, update)?;
        }
        if grows && end > vnode.status.size { self.grow(vnode, end, update) } else { Ok(()) }
    }

    /// Removes the body's records and file with the update; the caller handles the vnode.
    pub(crate) fn drop_body(&self, vnode: &Vnode, update: &mut Update) {
        let no = vnode.no();
        update.hold(&self.tree_state, no);
        match vnode.place {
            BodyLocation::None => {}
            BodyLocation::Inline => update.set_inline(no, None),
            // The file belongs to the origin.
            BodyLocation::Origin => update.forget_sums(no, 0),
            BodyLocation::File { epoch, generation, packed } => {
                if update.hold(&self.tree_state, no).gate.backup {
                    update.set_inline(no, None);
                }
                update.forget_sums(no, 0);
                // A file that a sealed epoch shows is removed with that epoch.
                if self.tree().alone_names(vnode) {
                    update.discard(BodyName {
                        volume: self.tree_state.id,
                        vnode: no,
                        epoch,
                        generation,
                        packed,
                    });
                }
            }
        }
    }

    /// Whether the body is in no file and needs none if it ends at `end`.
    fn stays_inline(&self, vnode: &Vnode, end: u64) -> bool {
        !vnode.place.is_file() && end <= INLINE_BYTES_MAX
    }

    /// The bytes of a body that is in no file.
    fn inline_bytes(&self, vnode: &Vnode, update: &Update) -> Result<Vec<u8>> {
        if vnode.place != BodyLocation::Inline {
            return Ok(Vec::new());
        }
        let pending = update.inline(vnode.no()).cloned();
        let bytes = match pending {
            Some(bytes) => bytes,
            None => self.tree().inline(vnode.no())?.map(Vec::from),
        };
        let whole = bytes.filter(|bytes| bytes.len() as u64 == vnode.status.size);
        whole.ok_or_else(|| StoreError::Damaged(format!("inline body of {}", vnode.status.fid)))
    }

    fn put_inline(&self, vnode: &mut Vnode, bytes: Vec<u8>, update: &mut Update) {
        vnode.status.size = bytes.len() as u64;
        charge(vnode, update, vnode.status.size);
        vnode.place = if bytes.is_empty() { BodyLocation::None } else { BodyLocation::Inline };
        update.set_inline(vnode.no(), (!bytes.is_empty()).then_some(bytes));
    }

    /// Moves the body into a file, if it is in none.
    pub(crate) fn make_file(&self, vnode: &mut Vnode, update: &mut Update) -> Result<()> {
        if vnode.place.is_file() {
            return self.own_file(vnode, update);
        }
        let bytes = self.inline_bytes(vnode, update)?;
        self.tree_state.media.room_for(BLOCK_BYTES)?;
        self.new_file(vnode, update, |disk, name| {
            disk.create(name).map_err(|e| StoreError::from_io("new body", &e))
        })?;
        if !bytes.is_empty() {
            update.hold(&self.tree_state, vnode.no()).gate.backup = true;
            if self.tree().is_layered() {
                // The record may belong to an older epoch.
                update.set_inline(vnode.no(), Some(bytes.clone()));
            }
            self.write_blocks(vnode, 0, &bytes, update)?;
        }
        Ok(())
    }

    /// Gives the vnode, which is in no file, an empty body in a new file, which `make` creates.
    pub(crate) fn new_file(
        &self,
        vnode: &mut Vnode,
        update: &mut Update,
        make: impl FnOnce(&dyn Disk, BodyName) -> Result<Arc<dyn BodyFile>>,
    ) -> Result<()> {
        let generation = vnode.generations + 1;
        let place = BodyLocation::File { epoch: self.tree().epoch, generation, packed: false };
        let moved = Vnode { place, generations: generation, ..vnode.clone() };
        let name = body_name(&self.tree(), &moved).expect("place is a file");
        let media = &self.tree_state.media;
        let held = update.hold(&self.tree_state, vnode.no());
        let earlier = held.gate.mark.take();
        held.made = Some(NewBody { name, mark: earlier, backup: held.gate.backup, lent: false });
        let batch = put_mark(&self.tree_state.media, name)?;
        // Otherwise a restart would not find the file without a record.
        media.write_out()?;
        held.gate.mark = Some(Mark { name, batch, size: 0 });
        let file = make(&*media.disk, name)?;
        held.gate.set_file(name, file);
        held.gate.unsynced_name = true;
        held.gate.trimmed = true;
        held.gate.suspect = false;
        if let Some(earlier) = earlier {
            update.unmark(earlier.name);
        }
        *vnode = moved;
        vnode.status.size = 0;
        charge(vnode, update, 0);
        Ok(())
    }

    fn write_blocks(
        &self,
        vnode: &mut Vnode,
        offset: u64,
        data: &[u8],
        update: &mut Update,
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let file = self.begin(vnode, update)?;
        let mut sums = Groups::load(self, vnode.no(), offset, end, update)?;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let new = blocks.clone().filter(|block| sums.of(*block) == 0).count() as u64;
        if new > 0 {
            self.tree_state.media.room_for(new * BLOCK_BYTES)?;
        }
        self.clear_strays(vnode, &*file, blocks.clone(), &sums, update)?;
        let overwrites = blocks.clone().any(|block| sums.of(block) != 0).then_some(offset);
        self.mark(vnode, overwrites, update)?;
        // The sums of the new content, before any write: a damaged block causes the error here.
        let size = vnode.status.size.max(end);
        for block in blocks {
            let start = block * BLOCK_BYTES;
            let block_end = (start + BLOCK_BYTES).min(size);
            let sum = if offset <= start && block_end <= end {
                sums::of_block(&data[(start - offset) as usize..(block_end - offset) as usize])
            } else {
                let mut bytes = self.old_block(vnode, &*file, block, sums.of(block), update)?;
                let from = offset.max(start);
                let to = end.min(start + BLOCK_BYTES);
                bytes[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
                sums::of_block(&bytes)
            };
            sums.set(block, sum);
        }
        self.touch(vnode.no(), update);
        file.write_at(offset, data).map_err(|e| StoreError::from_io("write of a body", &e))?;
        sums.put(vnode.no(), update);
        vnode.status.size = size;
        charge(vnode, update, vnode.status.used + new * BLOCK_BYTES);
        Ok(())
    }

    /// The current content of a block, filled up with zeros; checked.
    fn old_block(
        &self,
        vnode: &Vnode,
        file: &dyn BodyFile,
        block: u64,
        sum: u32,
        update: &mut Update,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; BLOCK];
        let start = block * BLOCK_BYTES;
        let there = vnode.status.size.saturating_sub(start).min(BLOCK_BYTES) as usize;
        if sum == 0 {
            return Ok(bytes);
        }
        read_exactly(file, start, &mut bytes[..there])?;
        let doubtful = update.hold(&self.tree_state, vnode.no()).gate.doubtful();
        if !doubtful && sums::of_block(&bytes) != sum {
            return Err(damaged_block(vnode, block));
        }
        Ok(bytes)
    }

    /// Rule 3: punches out bytes in holes of the range, stable before the holes are filled.
    fn clear_strays(
        &self,
        vnode: &Vnode,
        file: &dyn BodyFile,
        blocks: Range<u64>,
        sums: &Groups,
        update: &mut Update,
    ) -> Result<()> {
        if update.hold(&self.tree_state, vnode.no()).gate.lent {
            // The strays were cleared when the body was lent; bytes there now are a kernel's.
            return Ok(());
        }
        let end = blocks.end.min(vnode.status.size.div_ceil(BLOCK_BYTES));
        let mut found = false;
        let mut next = blocks.start;
        while let Some(hole) = (next..end).find(|block| sums.of(*block) == 0) {
            next = (hole..end).find(|block| sums.of(*block) != 0).unwrap_or(end);
            let (from, length) = (hole * BLOCK_BYTES, (next - hole) * BLOCK_BYTES);
            if file.has_data(from, length).map_err(|e| StoreError::from_io("seek", &e))? {
                file.punch(from, length).map_err(|e| StoreError::from_io("punch", &e))?;
                found = true;
            }
        }
        if found { self.tree_state.media.sync_disk(|| file.sync()) } else { Ok(()) }
    }

    /// As `clear_strays`, in all of the body.
    pub(crate) fn clear_all_strays(
        &self,
        vnode: &Vnode,
        file: &dyn BodyFile,
        update: &mut Update,
    ) -> Result<()> {
        if vnode.status.size == 0 {
            return Ok(());
        }
        let sums = Groups::load(self, vnode.no(), 0, vnode.status.size, update)?;
        self.clear_strays(vnode, file, 0..vnode.status.size.div_ceil(BLOCK_BYTES), &sums, update)
    }

    /// Removes the records behind `size` of a shorter body; does not touch the file. Sums of lent
    /// bodies mean nothing.
    pub(crate) fn cut_records(
        &self,
        vnode: &mut Vnode,
        size: u64,
        update: &mut Update,
    ) -> Result<()> {
        let edge = size.div_ceil(BLOCK_BYTES);
        let group = edge / GROUP_BLOCKS;
        let no = vnode.no();
        let mut sums = update.sums(&self.tree(), no, group)?;
        let tail = &mut sums[(edge % GROUP_BLOCKS) as usize..];
        let mut gone = tail.iter().filter(|sum| **sum != 0).count() as u64;
        tail.fill(0);
        gone += update.cut_sums(&self.tree(), no, group + 1)?;
        update.set_sums(no, group, sums);
        charge(vnode, update, vnode.status.used - gone * BLOCK_BYTES);
        Ok(())
    }

    /// Charges for so many more blocks.
    pub(crate) fn charge_more(&self, vnode: &mut Vnode, update: &mut Update, blocks: u64) {
        charge(vnode, update, vnode.status.used + blocks * BLOCK_BYTES);
    }

    fn grow(&self, vnode: &mut Vnode, size: u64, update: &mut Update) -> Result<()> {
        if size > vnode.status.size {
            // Needs no mark: after a crash the file is longer or shorter than the records say, and
            // either is harmless.
            let file = self.begin(vnode, update)?;
            self.touch(vnode.no(), update);
            // A kernel may extend a lent file at this moment.
            let lent = update.hold(&self.tree_state, vnode.no()).gate.lent;
            let grown = if lent { file.extend(size) } else { file.set_length(size) };
            grown.map_err(|e| StoreError::from_io("truncate of a body", &e))?;
            vnode.status.size = size;
        }
        Ok(())
    }

    fn shrink(&self, vnode: &mut Vnode, size: u64, update: &mut Update) -> Result<()> {
        let file = self.begin(vnode, update)?;
        let no = vnode.no();
        let edge = size / BLOCK_BYTES;
        let group = edge / GROUP_BLOCKS;
        let mut sums = Groups::load(self, no, size, size + 1, update)?;
        self.mark(vnode, Some(size), update)?;
        let mut gone = 0;
        for block in edge..(group + 1) * GROUP_BLOCKS {
            let sum = sums.of(block);
            let new = if block > edge || size.is_multiple_of(BLOCK_BYTES) || sum == 0 {
                0
            } else {
                let bytes = self.old_block(vnode, &*file, block, sum, update)?;
                sums::of_block(&bytes[..(size % BLOCK_BYTES) as usize])
            };
            gone += u64::from(sum != 0 && new == 0);
            sums.set(block, new);
        }
        gone += update.cut_sums(&self.tree(), no, group + 1)?;
        self.touch(no, update);
        file.set_length(size).map_err(|e| StoreError::from_io("truncate of a body", &e))?;
        sums.put(no, update);
        vnode.status.size = size;
        charge(vnode, update, vnode.status.used - gone * BLOCK_BYTES);
        Ok(())
    }

    /// Makes holes of whole blocks and zeroes the rest of the range.
    fn punch(&self, vnode: &mut Vnode, offset: u64, end: u64, update: &mut Update) -> Result<()> {
        let first = offset.next_multiple_of(BLOCK_BYTES);
        // The block with the end of the body counts as whole if the range reaches that end.
        let last = if end >= vnode.status.size {
            end.next_multiple_of(BLOCK_BYTES)
        } else {
            end - end % BLOCK_BYTES
        };
        if first >= last {
            return self.zero_within(vnode, offset, end, update);
        }
        self.zero_within(vnode, offset, first.min(end), update)?;
        self.zero_within(vnode, last.min(end), end, update)?;
        let file = self.begin(vnode, update)?;
        let no = vnode.no();
        let mut groups = Vec::new();
        let (from, to) = (first / BLOCK_BYTES, last / BLOCK_BYTES);
        self.each_pending_group(
            no,
            from / GROUP_BLOCKS,
            to.div_ceil(GROUP_BLOCKS),
            update,
            &mut groups,
        )?;
        self.mark(vnode, Some(first).filter(|_| !groups.is_empty()), update)?;
        let mut gone = 0;
        for (group, mut sums) in groups {
            for at in 0..GROUP_BLOCKS {
                if (from..to).contains(&(group * GROUP_BLOCKS + at)) {
                    gone += u64::from(std::mem::take(&mut sums[at as usize]) != 0);
                }
            }
            update.set_sums(no, group, sums);
        }
        self.touch(no, update);
        // Behind the end the file has only reserved room, which may stay.
        let below = last.min(vnode.status.size.next_multiple_of(BLOCK_BYTES)).saturating_sub(first);
        if below > 0 {
            file.punch(first, below).map_err(|e| StoreError::from_io("punch", &e))?;
        }
        charge(vnode, update, vnode.status.used - gone * BLOCK_BYTES);
        Ok(())
    }

    /// Groups of `from..to` that are not all holes, as the update leaves them.
    fn each_pending_group(
        &self,
        no: VnodeNo,
        from: u64,
        to: u64,
        update: &Update,
        groups: &mut Vec<(u64, Sums)>,
    ) -> Result<()> {
        let mut found = update.pending_groups(no, from, to);
        self.tree().each_group(no, from, &mut |group, _| {
            if group >= to {
                return ControlFlow::Break(());
            }
            found.insert(group);
            ControlFlow::Continue(())
        })?;
        for group in found {
            let sums = update.sums(&self.tree(), no, group)?;
            if count(&sums) > 0 {
                groups.push((group, sums));
            }
        }
        Ok(())
    }

    /// Zeroes a range that covers no whole block; holes stay, the body does not grow.
    fn zero_within(
        &self,
        vnode: &mut Vnode,
        offset: u64,
        end: u64,
        update: &mut Update,
    ) -> Result<()> {
        let mut at = offset;
        let end = end.min(vnode.status.size);
        while at < end {
            let next = end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let block = at / BLOCK_BYTES;
            let sums = update.sums(&self.tree(), vnode.no(), block / GROUP_BLOCKS)?;
            if sums[(block % GROUP_BLOCKS) as usize] != 0 {
                self.write_blocks(vnode, at, &[0; BLOCK][..(next - at) as usize], update)?;
            }
            at = next;
        }
        Ok(())
    }

    /// Turns holes in the range into blocks of zeros with room on the disk.
    fn reserve(&self, vnode: &mut Vnode, offset: u64, end: u64, update: &mut Update) -> Result<()> {
        let file = self.begin(vnode, update)?;
        let no = vnode.no();
        let mut sums = Groups::load(self, no, offset, end, update)?;
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let new = blocks.clone().filter(|block| sums.of(*block) == 0).count() as u64;
        if new == 0 {
            return Ok(());
        }
        self.tree_state.media.room_for(new * BLOCK_BYTES)?;
        self.clear_strays(vnode, &*file, blocks.clone(), &sums, update)?;
        self.mark(vnode, None, update)?;
        self.touch(no, update);
        let mut next = blocks.start;
        while next < blocks.end {
            let Some(hole) = (next..blocks.end).find(|block| sums.of(*block) == 0) else { break };
            next = (hole..blocks.end).find(|block| sums.of(*block) != 0).unwrap_or(blocks.end);
            let (from, length) = (hole * BLOCK_BYTES, (next - hole) * BLOCK_BYTES);
            file.reserve(from, length).map_err(|e| StoreError::from_io("fallocate", &e))?;
            (hole..next).for_each(|block| sums.set(block, *sums::OF_ZEROS));
        }
        sums.put(no, update);
        charge(vnode, update, vnode.status.used + new * BLOCK_BYTES);
        Ok(())
    }

    /// The body's file, without bytes behind its end.
    pub(crate) fn begin(&self, vnode: &Vnode, update: &mut Update) -> Result<Arc<dyn BodyFile>> {
        let held = update.hold(&self.tree_state, vnode.no());
        let file = open_file(&self.tree(), &held.gate, vnode)?;
        if !held.gate.trimmed && !held.gate.lent {
            if file.length().map_err(|e| StoreError::from_io("stat of a body", &e))?
                > vnode.status.size
            {
                file.set_length(vnode.status.size)
                    .map_err(|e| StoreError::from_io("truncate of a body", &e))?;
                self.tree_state.media.sync_disk(|| file.sync())?;
            }
            held.gate.trimmed = true;
        }
        Ok(file)
    }

    /// Rule 2: the mark is in the log, and on disk if existing bytes from `overwrites` on change.
    pub(crate) fn mark(
        &self,
        vnode: &Vnode,
        overwrites: Option<u64>,
        update: &mut Update,
    ) -> Result<()> {
        let name = body_name(&self.tree(), vnode).expect("the body is in a file");
        let gate = &mut update.hold(&self.tree_state, vnode.no()).gate;
        let mark = match gate.mark {
            Some(mark) if mark.name == name => mark,
            _ => *gate.mark.insert(Mark {
                name,
                batch: put_mark(&self.tree_state.media, name)?,
                size: vnode.status.size,
            }),
        };
        if overwrites.is_some_and(|from| from < mark.size)
            && !self.tree_state.media.is_synced(mark.batch)
        {
            self.tree_state.media.sync()?;
        }
        Ok(())
    }

    /// Records that the file may differ from the records from here on.
    pub(crate) fn touch(&self, no: VnodeNo, update: &mut Update) {
        let held = update.hold(&self.tree_state, no);
        held.touched = true;
        held.gate.writes += 1;
    }
}

/// Puts a file's mark into the log; returns the number of its batch.
pub(crate) fn put_mark(media: &Media, name: BodyName) -> Result<u64> {
    let key = unstable_key(name);
    let mut batch = Batch::default();
    batch.put(&key, &record::encode_numbers(&key, &[]));
    media.apply(&batch)
}

/// Sets the bytes that a vnode is charged for.
fn charge(vnode: &mut Vnode, update: &mut Update, used: u64) {
    update.bytes_delta += used as i64 - vnode.status.used as i64;
    vnode.status.used = used;
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
    fn load(
        volume: &Volume,
        no: VnodeNo,
        offset: u64,
        end: u64,
        update: &Update,
    ) -> Result<Groups> {
        let first = offset / BLOCK_BYTES / GROUP_BLOCKS;
        let past = end.div_ceil(BLOCK_BYTES).div_ceil(GROUP_BLOCKS);
        let groups = (first..past)
            .map(|group| update.sums(&volume.tree(), no, group))
            .collect::<Result<_>>()?;
        Ok(Groups { first, groups })
    }

    fn of(&self, block: u64) -> u32 {
        self.groups[(block / GROUP_BLOCKS - self.first) as usize][(block % GROUP_BLOCKS) as usize]
    }

    fn set(&mut self, block: u64, sum: u32) {
        self.groups[(block / GROUP_BLOCKS - self.first) as usize]
            [(block % GROUP_BLOCKS) as usize] = sum;
    }

    fn put(self, no: VnodeNo, update: &mut Update) {
        for (group, sums) in (self.first..).zip(self.groups) {
            update.set_sums(no, group, sums);
        }
    }
}
