//! Copies of lent bodies, for an epoch that is sealed (`copy_on_write.rs`).
//!
//! Kernels write into a lent body without notice. So the seal itself copies such a body while there
//! are no other writers: the batch that seals names the copy, with its sums and size, and the head
//! keeps the file and its own records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use types::VnodeNo;

use super::files::{failed, make_copy, sums_found};
use super::pack::note_body;
use crate::error::Result;
use crate::format::names::BodyName;
use crate::format::record::{GROUP_BLOCKS, Sums, count};
use crate::format::sums;
use crate::media::Media;
use crate::media::disk::BodyFile;
use crate::media::engine::Batch;
use crate::tree::{EpochView, RecordWriter, TreeState};
use crate::{BLOCK_BYTES, Vnode};

/// The copy of a lent body.
struct SealCopy {
    copy: BodyName,
    /// The vnode in the sealed epoch.
    sealed: Vnode,
    /// Groups that are not all holes.
    sums: BTreeMap<u64, Sums>,
    /// The vnode in the head from then on.
    head: Vnode,
}

/// The copies of a tree's lent bodies for the epoch that is about to be sealed.
#[derive(Default)]
pub(crate) struct SealCopies(Vec<SealCopy>);

impl SealCopies {
    /// Copies the bodies. Only kernels write until the seal is complete.
    ///
    /// # Errors
    /// `NoSpace`, `Medium`; then the copies are removed.
    pub(crate) fn make(tree_state: &TreeState) -> Result<SealCopies> {
        let (media, tree) = (&tree_state.media, tree_state.head());
        let mut made = SealCopies::default();
        for (_, no) in media.gates.lent(Some(tree_state.id)) {
            match copy_lent_body(media, &tree, no) {
                Ok(copy) => made.0.extend(copy),
                Err(error) => {
                    made.remove(media);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// The usage in bytes of the sealed epoch, computed from the head's: the copies contain the
    /// last writes of kernels.
    pub(crate) fn used(&self, head: u64) -> u64 {
        self.0.iter().fold(head, |bytes, copy| copy.used(bytes))
    }

    /// The same for one vnode.
    pub(crate) fn used_by(&self, no: VnodeNo, head: u64) -> u64 {
        self.0.iter().find(|copy| copy.head.no() == no).map_or(head, |copy| copy.used(head))
    }

    /// Removes the copies of an epoch that was not sealed.
    pub(crate) fn remove(&self, media: &Media) {
        for SealCopy { copy, .. } in &self.0 {
            let mut batch = Batch::default();
            batch.delete(&copy.unstable_key());
            let forgotten = media.usable().and_then(|()| {
                media.disk.remove(*copy).map_err(failed("removal of a body"))?;
                media.apply(&batch).map(drop)
            });
            if let Err(error) = forgotten {
                // The next start finds it by its mark.
                tracing::warn!(
                    %error, vnode = copy.vnode.0,
                    "the copy of an unsealed body stays until the next start removes it"
                );
            }
        }
    }

    /// Adds to the batch that seals: the sealed epoch shows the copies, and the next one the files.
    pub(crate) fn put(&self, tree: &EpochView, batch: &mut Batch) -> Result<()> {
        self.0.iter().try_for_each(|made| made.put(tree, batch))
    }
}

impl SealCopy {
    fn used(&self, head: u64) -> u64 {
        (head + self.sealed.status.used).saturating_sub(self.head.status.used)
    }

    fn put(&self, tree: &EpochView, batch: &mut Batch) -> Result<()> {
        let no = self.head.no();
        let mut groups: BTreeMap<u64, Sums> = self.sums.clone();
        tree.each_group(no, 0, &mut |group, _| {
            groups.entry(group).or_insert([0; GROUP_BLOCKS as usize]);
            ControlFlow::Continue(())
        })?;
        let mut records = RecordWriter::new(tree, batch);
        records.put_split(&self.sealed, &self.head)?;
        for (group, sealed) in groups {
            let head = tree.sums(no, group)?;
            if head != sealed {
                records.put_split_sums(no, group, &sealed, &head)?;
            }
        }
        if tree.is_sealed() {
            records.note_change(no);
        }
        records.note_next_change(no);
        batch.delete(&self.copy.unstable_key());
        note_body(&tree.media, self.copy, batch);
        Ok(())
    }
}

/// `None` if the body has no content to show.
fn copy_lent_body(media: &Media, tree: &EpochView, no: VnodeNo) -> Result<Option<SealCopy>> {
    let Some(head) = tree.vnode(no)? else { return Ok(None) };
    let Some(name) = tree.body_name(&head) else { return Ok(None) };
    debug_assert!(tree.owns(&head), "VO-1: a lent body is the head's alone");
    let copy = BodyName { generation: head.generations + 1, ..name };
    media.room_for(head.status.used)?;
    let file = make_copy(media, name, copy)?;
    let (place, generations) = (copy.place(), copy.generation);
    let mut sealed = Vnode { place, generations, own_since: 0, ..head.clone() };
    sealed.status.size = file.stamp().map_err(failed("stat of a body"))?.length;
    let sums = sums_of(&*file, &sealed)?;
    sealed.status.used = sums.values().map(count).sum::<u64>() * BLOCK_BYTES;
    let head = Vnode { generations, own_since: tree.epoch + 1, ..head };
    Ok(Some(SealCopy { copy, sealed, sums, head }))
}

/// The sums of a file without writers, by group; a block without bytes is a hole.
fn sums_of(file: &dyn BodyFile, vnode: &Vnode) -> Result<BTreeMap<u64, Sums>> {
    let mut groups: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut at = 0;
    while let Some(run) = file.next_data(at).map_err(failed("seek"))? {
        for block in run.start / BLOCK_BYTES..run.end.min(vnode.status.size).div_ceil(BLOCK_BYTES) {
            let group = groups.entry(block / GROUP_BLOCKS).or_insert([0; GROUP_BLOCKS as usize]);
            group[(block % GROUP_BLOCKS) as usize] = *sums::OF_ZEROS;
        }
        at = run.end;
        if at >= vnode.status.size {
            break;
        }
    }
    for (group, sums) in &mut groups {
        *sums = sums_found(file, vnode, *group, sums)?;
    }
    Ok(groups)
}
