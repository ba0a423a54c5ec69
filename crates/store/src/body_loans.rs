//! Body loans: kernels write into the file, and the records follow.
//!
//! Model (docs/spec/passthrough.md). From [`Volume::lend`] to [`Volume::end_lend`] the file may
//! change at any moment without notice to the store; readers get the file's bytes, unchecked.
//! [`Volume::settle_lent`] updates size and block map from the file: a block with bytes that the
//! records call a hole gets the sum of zeros for the time being, because the sums of a lent body
//! mean only "no hole". Every other change of the body first does this in the same update, and then
//! changes the file in place.
//!
//! The times of the file show whether it changed. A store into a map sets them only at the page's
//! first change since it was last written to the disk. So where maps may exist, each settling first
//! starts that writing: every later store then changes the times.
//!
//! The mark records the loan, so that after a restart of the server or the machine the body is
//! still lent and is settled before anything could cut off bytes behind the recorded end. After the
//! loan the body is in doubt as after a crash, and is summed anew in the background (PT-2).

use types::{VnodeNo, VolumeId};

use crate::disk::{BodyFile, BodyName, Stamp};
use crate::engine::{Batch, Engine};
use crate::media::Media;
use crate::reader::{body_name, open_file};
use crate::record::{self, GROUP_BLOCKS};
use crate::sums;
use crate::update::unstable_key;
use crate::volume::Result;
use crate::{BLOCK_BYTES, Partition, StoreError, Update, Vnode, Volume};

impl Volume {
    /// Lends the body: kernels may write into it and map it for writing. A body without a file is
    /// moved into one. Does nothing if the body is lent already. The caller puts the vnode.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn lend(&self, vnode: &mut Vnode, update: &mut Update) -> Result<()> {
        self.writable()?;
        update.hold(&self.tree_state, vnode.no());
        self.make_file(vnode, update)?;
        let gate = &mut update.hold(&self.tree_state, vnode.no()).gate;
        gate.mapped = true;
        if gate.lent {
            return Ok(());
        }
        let file = self.begin(vnode, update)?;
        // Bytes that a crash left in holes must not become data.
        self.clear_all_strays(vnode, &*file, update)?;
        let stable = (vnode.status.size > 0).then_some(0);
        self.mark(vnode, stable, update)?;
        let name = body_name(&self.tree(), vnode).expect("the body is in a file");
        put_lent_mark(&self.tree_state.media, name)?;
        let stamp = stamp_of(&*file)?;
        self.touch(vnode.no(), update);
        let gate = &mut update.hold(&self.tree_state, vnode.no()).gate;
        gate.lent = true;
        gate.settled = Some(stamp);
        self.tree_state.media.bodies.lent.lock().insert((self.tree_state.id, vnode.no()));
        Ok(())
    }

    /// Whether the body is lent.
    pub fn is_lent(&self, no: VnodeNo) -> bool {
        self.tree_state.media.bodies.lent.lock().contains(&(self.tree_state.id, no))
    }

    /// Updates the vnode from the file of its lent body; returns whether the file had changed,
    /// `false` if the body is not lent. The caller puts the vnode if it had changed.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn settle_lent(&self, vnode: &mut Vnode, update: &mut Update) -> Result<bool> {
        // Without the gate: a writer may check the body first.
        if !self.is_lent(vnode.no()) || body_name(&self.tree(), vnode).is_none() {
            return Ok(false);
        }
        let held = update.hold(&self.tree_state, vnode.no());
        if !held.gate.lent {
            return Ok(false);
        }
        let file = open_file(&self.tree(), &held.gate, vnode)?;
        if held.gate.settled == Some(stamp_of(&*file)?) {
            return Ok(false);
        }
        if held.gate.mapped {
            file.settle_maps().map_err(|e| StoreError::from_io("writing of a body", &e))?;
        }
        // The next settling sees what is stored into a map from here on.
        let stamp = stamp_of(&*file)?;
        held.settles = Some(stamp);
        if stamp.length < vnode.status.size {
            self.cut_records(vnode, stamp.length, update)?;
        }
        vnode.status.size = stamp.length;
        self.map_data(vnode, &*file, update)?;
        self.touch(vnode.no(), update);
        Ok(true)
    }

    /// Writes at the current end of the body; returns the offset. No kernel's append to a lent body
    /// comes in between.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn append(&self, vnode: &mut Vnode, data: &[u8], update: &mut Update) -> Result<u64> {
        self.settle_lent(vnode, update)?;
        let lent = self.is_lent(vnode.no()) && update.hold(&self.tree_state, vnode.no()).gate.lent;
        if !lent {
            let end = vnode.status.size;
            return self.write(vnode, end, data, update).map(|()| end);
        }
        self.tree_state.media.room_for(data.len() as u64)?;
        let file = open_file(&self.tree(), &update.hold(&self.tree_state, vnode.no()).gate, vnode)?;
        self.touch(vnode.no(), update);
        let at = file.append(data).map_err(|e| StoreError::from_io("append to a body", &e))?;
        self.settle_lent(vnode, update)?;
        Ok(at)
    }

    /// Marks blocks with bytes that the records call holes as data.
    fn map_data(&self, vnode: &mut Vnode, file: &dyn BodyFile, update: &mut Update) -> Result<()> {
        let (no, size) = (vnode.no(), vnode.status.size);
        let mut new = 0;
        let mut at = 0;
        while let Some(run) = file.next_data(at).map_err(|e| StoreError::from_io("seek", &e))? {
            let blocks = run.start / BLOCK_BYTES..run.end.min(size).div_ceil(BLOCK_BYTES);
            for group in blocks.start / GROUP_BLOCKS..blocks.end.div_ceil(GROUP_BLOCKS) {
                let mut stored = update.sums(&self.tree(), no, group)?;
                let before = new;
                for (block, sum) in (group * GROUP_BLOCKS..).zip(stored.iter_mut()) {
                    if *sum == 0 && blocks.contains(&block) {
                        *sum = *sums::OF_ZEROS;
                        new += 1;
                    }
                }
                if new > before {
                    update.set_sums(no, group, stored);
                }
            }
            at = run.end;
            if at >= size {
                break;
            }
        }
        self.charge_more(vnode, update, new);
        Ok(())
    }

    /// Ends the loan if no process has the file open for writing and the records are up to date;
    /// returns whether it ended, `true` if the body is not lent. The caller ensures that no session
    /// has the body.
    ///
    /// # Errors
    /// `Medium`.
    pub fn end_lend(&self, no: VnodeNo) -> Result<bool> {
        let media = &self.tree_state.media;
        let id = (self.tree_state.id, no);
        let gate = media.bodies.gate(id);
        let mut gate = gate.write();
        if !gate.lent {
            media.bodies.lent.lock().remove(&id);
            return Ok(true);
        }
        let name = self.tree().vnode(no)?.and_then(|vnode| body_name(&self.tree(), &vnode));
        if let Some(name) = name {
            gate.close();
            let written = media
                .disk
                .is_written(name)
                .map_err(|e| StoreError::from_io("lease of a body", &e))?;
            let file = gate.file(&*media.disk, name)?;
            // Compared after the last writer is gone.
            let settled =
                file.is_none_or(|file| file.stamp().ok() == gate.settled && gate.settled.is_some());
            if written || !settled {
                return Ok(false);
            }
            let key = unstable_key(name);
            let mut batch = Batch::default();
            batch.put(&key, &record::encode_numbers(&key, &[]));
            media.apply(&batch)?;
        }
        gate.lent = false;
        gate.mapped = false;
        gate.settled = None;
        gate.suspect = name.is_some();
        // A sync in progress must not remove the mark.
        gate.writes += 1;
        media.bodies.lent.lock().remove(&id);
        Ok(true)
    }
}

impl Partition {
    /// All lent bodies.
    pub fn lent(&self) -> Vec<(VolumeId, VnodeNo)> {
        self.0.media.bodies.lent.lock().iter().copied().collect()
    }

    /// Whether bodies have descriptors that clients can get.
    pub fn has_descriptors(&self) -> bool {
        self.0.media.disk.has_descriptors()
    }
}

pub(crate) fn stamp_of(file: &dyn BodyFile) -> Result<Stamp> {
    file.stamp().map_err(|e| StoreError::from_io("stat of a body", &e))
}

/// The value of a lent body's mark.
const LENT: [u64; 1] = [1];

pub(crate) fn put_lent_mark(media: &Media, name: BodyName) -> Result<u64> {
    let key = unstable_key(name);
    let mut batch = Batch::default();
    batch.put(&key, &record::encode_numbers(&key, &LENT));
    media.apply(&batch)
}

/// Whether the body's mark records a loan.
pub(crate) fn is_lent_mark(media: &Media, name: BodyName) -> Result<bool> {
    let key = unstable_key(name);
    let value = media.engine.get(&key)?;
    Ok(value
        .is_some_and(|value| record::decode_numbers(&key, &value).is_ok_and(|found| found == LENT)))
}
