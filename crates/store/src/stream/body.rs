//! A body of a stream, applied block by block as an update of its vnode.
//!
//! A body that is in the same file as in `since` is *patched*: the first change gives the sealed
//! epochs a copy (`copy_on_write.rs`), and blocks marked as the same are there already. Any other
//! is *rebuilt* in a new file, into which such blocks are copied from `since`; so data that an
//! earlier stream left has no effect. After a restart in the middle of a body it is not known which
//! it was: then such blocks are copied, and holes are made again. A stream over a volume patches
//! nothing: a body of which only the attributes changed stays in the file that the volume shows,
//! and the first other block turns it into a rebuilt one.

use std::ops::ControlFlow;
use std::sync::Arc;

use types::AllocateMode;
use types::limits::FILE_BYTES_MAX;

use super::codec::{BodyForm, Run};
use crate::body::Update;
use crate::body::files::{damaged_block, read_exactly};
use crate::body::origin_body::FileOwner;
use crate::error::Result;
use crate::format::record::GROUP_BLOCKS;
use crate::format::sums::{self, BLOCK};
use crate::media::disk::{BodyFile, CHUNK_BYTES, open_body, unpack_frame};
use crate::tree::EpochView;
use crate::volume::Volume;
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode};

/// How the body of the vnode in which a part ended is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Patch,
    Rebuild,
    Unknown,
}

/// The most room that is reserved in one call.
const ZEROS_AT_ONCE: u64 = 1 << 30;

/// The vnode that is being put together, and its state in `since`.
pub(super) struct Building<'a> {
    pub(super) volume: &'a Volume,
    pub(super) before: Option<&'a EpochView>,
    pub(super) mode: Mode,
    pub(super) source: Source,
}

/// The origin of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Stream,
    /// A stream over a volume, which shows `before`.
    Over,
    /// Entries of a feed: blocks that they do not name stay as they are.
    Feed,
}

impl Building<'_> {
    /// Sets the body's place and size; returns how the rest is done.
    pub(super) fn begin(
        &self,
        vnode: &mut Vnode,
        form: BodyForm<'_>,
        size: u64,
        update: &mut Update<'_>,
    ) -> Result<Mode> {
        let volume = self.volume;
        match form {
            BodyForm::None => {
                if vnode.place != BodyLocation::None {
                    self.empty(vnode, update)?;
                }
            }
            BodyForm::Inline(bytes) => {
                self.empty(vnode, update)?;
                volume.body(vnode, update)?.write(0, bytes)?;
            }
            BodyForm::File if self.source == Source::Feed && vnode.place.is_file() => {
                if vnode.status.size != size {
                    volume.body(vnode, update)?.truncate(size)?;
                }
                if vnode.place.is_file() {
                    return Ok(Mode::Patch);
                }
                self.make_file(vnode, size, update)?;
            }
            BodyForm::File => {
                if size > 0
                    && self.shares_file(vnode)?
                    && (self.source != Source::Over || vnode.status.size == size)
                {
                    if self.source == Source::Over {
                        return Ok(Mode::Patch);
                    }
                    volume.body(vnode, update)?.truncate(size)?;
                    return Ok(Mode::Patch);
                }
                self.empty(vnode, update)?;
                self.make_file(vnode, size, update)?;
            }
        }
        Ok(Mode::Rebuild)
    }

    /// Leaves the vnode without a body. A file that is shown under another record stays.
    fn empty(&self, vnode: &mut Vnode, update: &mut Update<'_>) -> Result<()> {
        // Clients that have that file open continue with it; the server makes the volume's clients
        // ask again.
        vnode.handed = false;
        self.volume.body(vnode, update)?.truncate(0)
    }

    fn make_file(&self, vnode: &mut Vnode, size: u64, update: &mut Update<'_>) -> Result<()> {
        let mut body = self.volume.body(vnode, update)?;
        body.make_file()?;
        if size > 0 { body.truncate(size) } else { Ok(()) }
    }

    /// Before the first block that differs: gives the body, which is the same up to this block, a
    /// file of its own if the volume shows the current one.
    fn leave_shown(
        &mut self,
        vnode: &mut Vnode,
        first: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        if self.source != Source::Over || self.mode == Mode::Rebuild || !self.shares_file(vnode)? {
            return Ok(());
        }
        let size = vnode.status.size;
        self.empty(vnode, update)?;
        self.make_file(vnode, size, update)?;
        self.mode = Mode::Rebuild;
        self.copy(vnode, 0, first, update)
    }

    /// Whether the head's body is in the same file as in `since`.
    fn shares_file(&self, vnode: &Vnode) -> Result<bool> {
        let Some(before) = self.before else { return Ok(false) };
        let before = before.vnode(vnode.no())?;
        let file = vnode.place.is_file();
        Ok(file
            && before.is_some_and(|before| {
                before.place == vnode.place && before.status.size == vnode.status.size
            }))
    }

    pub(super) fn blocks(
        &mut self,
        vnode: &mut Vnode,
        run: Run,
        first: u64,
        count: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        need_file(vnode)?;
        if run == Run::Same
            && self.source == Source::Over
            && self.mode == Mode::Unknown
            && self.shares_file(vnode)?
        {
            self.mode = Mode::Patch;
        }
        if run != Run::Same {
            self.leave_shown(vnode, first, update)?;
        }
        match (run, self.mode) {
            (Run::Same, Mode::Patch) | (Run::Hole, Mode::Rebuild) => Ok(()),
            (Run::Same, Mode::Rebuild) => self.copy(vnode, first, count, update),
            (Run::Same, Mode::Unknown) => {
                self.punch(vnode, first, count, update)?;
                self.copy(vnode, first, count, update)
            }
            (Run::Hole, Mode::Patch | Mode::Unknown) => self.punch(vnode, first, count, update),
            (Run::Zeros, _) => self.zeros(vnode, first, count, update),
        }
    }

    pub(super) fn data(
        &mut self,
        vnode: &mut Vnode,
        first: u64,
        data: &[u8],
        update: &mut Update<'_>,
    ) -> Result<()> {
        need_file(vnode)?;
        let inside =
            first.checked_mul(BLOCK_BYTES).and_then(|at| at.checked_add(data.len() as u64));
        if inside.is_none_or(|end| end > vnode.status.size) {
            return Err(StoreError::NoStream("a body has bytes behind its end"));
        }
        self.leave_shown(vnode, first, update)?;
        self.volume.body(vnode, update)?.write(first * BLOCK_BYTES, data)
    }

    /// Applies a packed chunk. It is unpacked here, since bodies are put together in plain files;
    /// it never takes more room than a chunk, even if its frame is wrong.
    pub(super) fn packed(
        &mut self,
        vnode: &mut Vnode,
        first: u64,
        frame: &[u8],
        update: &mut Update<'_>,
    ) -> Result<()> {
        let left = first.checked_mul(BLOCK_BYTES).and_then(|at| vnode.status.size.checked_sub(at));
        let length = left.unwrap_or(0).min(CHUNK_BYTES) as usize;
        let mut bytes = vec![0; length];
        if length == 0 || unpack_frame(frame, &mut bytes).is_err() {
            return Err(StoreError::NoStream("the frame of a packed chunk is wrong"));
        }
        self.data(vnode, first, &bytes, update)
    }

    fn punch(
        &self,
        vnode: &mut Vnode,
        first: u64,
        count: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        let Some(range) = bytes_of(first, count) else { return Ok(()) };
        self.volume.body(vnode, update)?.allocate_range(range.0, range.1, AllocateMode::PunchHole)
    }

    fn zeros(
        &self,
        vnode: &mut Vnode,
        first: u64,
        count: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        let Some((mut at, mut left)) = bytes_of(first, count) else { return Ok(()) };
        while left > 0 {
            let step = left.min(ZEROS_AT_ONCE);
            let mut body = self.volume.body(vnode, update)?;
            body.allocate_range(at, step, AllocateMode::ZeroKeepSize)?;
            (at, left) = (at + step, left - step);
        }
        Ok(())
    }

    /// Copies blocks from `since`. The update holds the gate of the vnode, so that the file of
    /// `since` does not change meanwhile.
    fn copy(
        &self,
        vnode: &mut Vnode,
        first: u64,
        count: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        self.volume.body(vnode, update)?.hold();
        let fits = || StoreError::NoStream("its start differs from the epoch on this partition");
        let before = self.before.ok_or_else(fits)?;
        let old = before.vnode(vnode.no())?.ok_or_else(fits)?;
        let file_owner = if old.place == BodyLocation::Origin {
            Some(FileOwner::find(before, vnode.no())?)
        } else {
            None
        };
        let file = match &file_owner {
            Some(file_owner) => file_owner.file()?,
            None => {
                let name = before.body_name(&old).ok_or_else(fits)?;
                let file = open_body(&*before.media.disk, name);
                let file = file.map_err(|e| StoreError::from_io("open of a body", &e))?;
                file.ok_or_else(|| {
                    StoreError::Damaged(format!("{}, which has lost its file,", old.status.fid))
                })?
            }
        };
        let end = first.saturating_add(count);
        let mut groups = Vec::new();
        before.each_group(vnode.no(), first / GROUP_BLOCKS, &mut |group, sums| {
            if group * GROUP_BLOCKS >= end {
                return ControlFlow::Break(());
            }
            groups.push((group, sums));
            ControlFlow::Continue(())
        })?;
        for (group, sums) in groups {
            for (at, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum != 0) {
                let block = group * GROUP_BLOCKS + at as u64;
                if (first..end).contains(&block) {
                    self.copy_block(vnode, &old, (&file, *sum), block, update)?;
                }
            }
        }
        Ok(())
    }

    fn copy_block(
        &self,
        vnode: &mut Vnode,
        old: &Vnode,
        (file, sum): (&Arc<dyn BodyFile>, u32),
        block: u64,
        update: &mut Update<'_>,
    ) -> Result<()> {
        let at = block * BLOCK_BYTES;
        let there = old.status.size.saturating_sub(at).min(BLOCK_BYTES) as usize;
        let wanted = vnode.status.size.saturating_sub(at).min(there as u64) as usize;
        let mut bytes = vec![0; BLOCK];
        read_exactly(&**file, at, &mut bytes[..there])?;
        if sums::of_block(&bytes) != sum {
            return Err(damaged_block(old, block));
        }
        if wanted == 0 {
            return self.zeros(vnode, block, 1, update);
        }
        self.volume.body(vnode, update)?.write(at, &bytes[..wanted])
    }
}

fn need_file(vnode: &Vnode) -> Result<()> {
    if vnode.place.is_file() {
        return Ok(());
    }
    Err(StoreError::NoStream("blocks of a body that is not in a file"))
}

/// The offset and length of blocks in bytes, if a file can be so long.
fn bytes_of(first: u64, count: u64) -> Option<(u64, u64)> {
    let at = first.checked_mul(BLOCK_BYTES).filter(|at| *at < FILE_BYTES_MAX)?;
    Some((at, count.saturating_mul(BLOCK_BYTES).min(FILE_BYTES_MAX - at)))
}
