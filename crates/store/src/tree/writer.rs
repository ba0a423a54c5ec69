//! Writing the records of a tree's head, into a batch.
//!
//! Model. A record of the head's epoch hides older ones under its prefix. Those that only the head
//! sees, newer than the floor, go with the same batch; where a sealed epoch or the origin shows
//! one, an erasure leaves a tombstone over it.

use std::ops::ControlFlow;

use types::VnodeNo;

use super::view::EpochView;
use crate::error::Result;
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record::{self, Sums, count};
use crate::format::vnode::{BodyLocation, Vnode};
use crate::media::engine::{Batch, Engine, prefix_end};

/// A head and the batch that changes it.
pub(crate) struct RecordWriter<'a> {
    view: &'a EpochView,
    batch: &'a mut Batch,
}

impl RecordWriter<'_> {
    pub(crate) fn new<'a>(view: &'a EpochView, batch: &'a mut Batch) -> RecordWriter<'a> {
        assert!(view.is_head(), "VO-1: only the head of a tree is written");
        RecordWriter { view, batch }
    }

    /// Puts a record under `prefix`, in place of those of other epochs that only the head sees.
    pub(crate) fn put(
        &mut self,
        prefix: &[u8],
        encode: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<()> {
        if self.view.has_gap() {
            self.remove_covered(prefix)?;
        }
        let key = self.view.current(prefix);
        self.batch.put(&key, &encode(&key));
        Ok(())
    }

    /// Puts a vnode's record.
    pub(crate) fn put_vnode(&mut self, vnode: &Vnode) -> Result<()> {
        if self.view.has_gap() {
            self.discard_covered(vnode.no(), Some(vnode.place))?;
        }
        let floor = self.view.floor;
        self.put(&key::of_vnode(kind::VNODE, self.view.id, vnode.no()), |key| {
            if (1..=floor).contains(&vnode.own_since) {
                // The vnode was read before the last seal, and shares its file since.
                record::encode_vnode(key, &Vnode { own_since: 0, ..vnode.clone() })
            } else {
                record::encode_vnode(key, vnode)
            }
        })
    }

    /// Puts one record for the epoch that is being sealed, and one for the next epoch, the head.
    /// The head keeps its body file.
    pub(crate) fn put_split(&mut self, sealed: &Vnode, head: &Vnode) -> Result<()> {
        assert_ne!(sealed.place, head.place, "VO-1: the sealed epoch has a file of its own");
        let prefix = key::of_vnode(kind::VNODE, self.view.id, head.no());
        if self.view.has_gap() {
            self.discard_covered(head.no(), Some(head.place))?;
        }
        self.put(&prefix, |key| record::encode_vnode(key, sealed))?;
        let key = prefix.epoch(self.view.epoch + 1);
        self.batch.put(&key, &record::encode_vnode(&key, head));
        Ok(())
    }

    /// Puts the sums of a group; a group of holes has no record.
    pub(crate) fn put_sums(&mut self, no: VnodeNo, group: u64, sums: &Sums) -> Result<()> {
        let prefix = key::sums(self.view.id, no, group);
        if count(sums) == 0 {
            return self.erase(&prefix);
        }
        let value = self.view.encode_sums(no, &prefix.epoch(self.view.epoch), sums)?;
        self.put(&prefix, |_| value)
    }

    /// As `put_split`, for sums of a group that differ between the two.
    pub(crate) fn put_split_sums(
        &mut self,
        no: VnodeNo,
        group: u64,
        sealed: &Sums,
        head: &Sums,
    ) -> Result<()> {
        self.put_sums(no, group, sealed)?;
        let key = key::sums(self.view.id, no, group).epoch(self.view.epoch + 1);
        let value = if count(head) == 0 {
            record::tombstone(&key)
        } else {
            self.view.encode_sums(no, &key, head)?
        };
        self.batch.put(&key, &value);
        Ok(())
    }

    /// Erases a vnode's record.
    pub(crate) fn erase_vnode(&mut self, no: VnodeNo) -> Result<()> {
        if self.view.has_gap() {
            self.discard_covered(no, None)?;
        }
        self.erase(&key::of_vnode(kind::VNODE, self.view.id, no))
    }

    /// Body files that only the head sees, of a vnode's records that are about to go, unless the
    /// new record or a remaining one names them: copies for a sealed epoch whose volume was removed
    /// since.
    fn discard_covered(&mut self, no: VnodeNo, new: Option<BodyLocation>) -> Result<()> {
        let mut gone = Vec::new();
        let view = self.view;
        let prefix = key::of_vnode(kind::VNODE, view.id, no);
        let from = prefix.epoch(view.epoch - 1);
        view.media.engine.scan(&from, &prefix_end(&prefix), &mut |key, value| {
            let vnode = record::decode_vnode(key, view.id, no, value).ok().flatten();
            let place = vnode.map(|vnode| vnode.place);
            if key::epoch_of(key) > view.floor {
                gone.extend(place);
                return ControlFlow::Continue(());
            }
            // Older records name this file or older ones.
            gone.retain(|gone| Some(*gone) != place);
            ControlFlow::Break(())
        })?;
        gone.iter().filter(|gone| Some(**gone) != new).for_each(|gone| self.discard(no, *gone));
        Ok(())
    }

    /// Notes that no record names the body file any more; the background thread removes it.
    pub(crate) fn discard(&mut self, no: VnodeNo, place: BodyLocation) {
        if let Some(name) = BodyName::at(self.view.id, no, place) {
            put_garbage(name, self.batch);
            self.batch.delete(&name.unstable_key());
        }
    }

    /// Erases the record under `prefix`.
    pub(crate) fn erase(&mut self, prefix: &[u8]) -> Result<()> {
        let key = self.view.current(prefix);
        let is_shown = self.view.is_layered()
            && match self.remove_covered(prefix)? {
                Some(shown) => shown,
                None => self.view.inherits(prefix)?,
            };
        if is_shown {
            self.batch.put(&key, &record::tombstone(&key));
        } else {
            self.batch.delete(&key);
        }
        Ok(())
    }

    /// Removes older records that only the head sees; returns whether a sealed epoch shows one,
    /// which may be a tombstone.
    fn remove_covered(&mut self, prefix: &[u8]) -> Result<Option<bool>> {
        let RecordWriter { view, batch } = self;
        let from = [prefix, &(!(view.epoch - 1)).to_be_bytes()].concat();
        let mut shown = None;
        view.media.engine.scan(&from, &prefix_end(prefix), &mut |key, value| {
            if key.len() == from.len() {
                if key::epoch_of(key) > view.floor {
                    batch.delete(key);
                    return ControlFlow::Continue(());
                }
                shown = Some(!record::is_tombstone(value));
            }
            ControlFlow::Break(())
        })?;
        Ok(shown)
    }

    /// Notes for releases and for the sweep that the vnode or its records changed in this epoch.
    pub(crate) fn note_change(&mut self, no: VnodeNo) {
        self.note(&key::change(self.view.id, self.view.epoch, no));
    }

    /// The same for a bucket of a directory, so that a large directory is not sent or swept as a
    /// whole.
    pub(crate) fn note_bucket(&mut self, dir: VnodeNo, hash: u64) {
        self.note(&key::change(self.view.id, self.view.epoch, dir).number(hash));
    }

    /// The same for a vnode that the next epoch will have changed.
    pub(crate) fn note_next_change(&mut self, no: VnodeNo) {
        self.note(&key::change(self.view.id, self.view.epoch + 1, no));
    }

    fn note(&mut self, key: &[u8]) {
        self.batch.put(key, &record::encode_change(key));
    }
}

/// Notes that no record names the body file any more.
pub(crate) fn put_garbage(name: BodyName, batch: &mut Batch) {
    let key = name.garbage_key();
    batch.put(&key, &record::encode_numbers(&key, &[]));
}
