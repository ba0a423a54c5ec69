//! Applies the items of a part to the head of a tree that comes in.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use types::{Fid, Kind, VnodeNo};

use super::body::{Building, Mode, Source};
use super::codec::{BodyForm, Item, StreamPart};
use super::outgoing::stage;
use super::progress::Under;
use crate::StoreError;
use crate::body::Update;
use crate::error::Result;
use crate::format::record::BucketEntry;
use crate::format::vnode::{Vnode, initial_used};
use crate::media::CommitScope;
use crate::volume::Volume;

/// The number of buckets that one batch applies.
const BUCKETS_AT_ONCE: usize = 64;

/// The vnode of the current items, and the update that they form.
struct Current<'a> {
    vnode: Vnode,
    update: Update<'a>,
}

/// Applies a part to the head that `volume` writes. The mode of the body in whose middle it ends
/// follows each item. The scope gathers its updates.
pub(super) fn apply(
    scope: &CommitScope,
    volume: &Volume,
    since: u64,
    under: Option<&Under>,
    mode: &mut Mode,
    part: &StreamPart,
) -> Result<()> {
    let tree = volume.tree();
    let before = (since != 0).then(|| tree.at(since));
    let source = if under.is_some() { Source::Over } else { Source::Stream };
    let building = Building { volume, before: before.as_ref(), mode: *mode, source };
    let shift = under.map_or(0, |under| under.shift);
    let next = part.from.vnode;
    let mut applying = Applying { scope, building, shift, current: None, next };
    if part.from.stage != stage::VNODE {
        applying.resume(part.from.vnode)?;
    }
    for item in part.items() {
        let applied = applying.item(item?, part.head.since == 0);
        *mode = applying.building.mode;
        applied?;
    }
    applying.commit()?;
    if part.head.since == 0 {
        applying.clear_up_to(part.to.vnode)?;
    }
    Ok(())
}

/// Applies the items of one entry of a feed to the head that `volume` writes.
pub(crate) fn apply_entry<'i>(
    scope: &CommitScope,
    volume: &Volume,
    items: impl Iterator<Item = Result<Item<'i>>>,
) -> Result<()> {
    let building = Building { volume, before: None, mode: Mode::Patch, source: Source::Feed };
    let next = VnodeNo::default();
    let mut applying = Applying { scope, building, shift: 0, current: None, next };
    for item in items {
        applying.item(item?, false)?;
    }
    applying.commit()
}

struct Applying<'a> {
    scope: &'a CommitScope,
    building: Building<'a>,
    /// How much higher versions are here than at the source.
    shift: u64,
    current: Option<Current<'a>>,
    /// Vnodes below this number match the stream.
    next: VnodeNo,
}

impl<'a> Applying<'a> {
    /// Loads the vnode in whose middle the part begins.
    fn resume(&mut self, no: VnodeNo) -> Result<()> {
        let vnode = self
            .building
            .volume
            .vnode(no)?
            .ok_or(StoreError::NoStream("a part is missing before this one"))?;
        self.current = Some(Current { vnode, update: Update::within(Some(self.scope)) });
        self.next = VnodeNo(no.0 + 1);
        Ok(())
    }

    fn item(&mut self, item: Item<'_>, everything: bool) -> Result<()> {
        match item {
            Item::Vnode(vnode, form) => {
                self.commit()?;
                if everything {
                    self.clear_up_to(vnode.no())?;
                }
                self.next = VnodeNo(vnode.no().0 + 1);
                self.begin(*vnode, form)
            }
            Item::Gone(no) => {
                self.commit()?;
                self.remove(no)
            }
            Item::Xattr(name, value) => {
                let volume = self.building.volume;
                let Current { vnode, update } = self.current()?;
                volume.edit(vnode, update).put_xattr(name, value)
            }
            Item::XattrGone(name) => {
                let volume = self.building.volume;
                let Current { vnode, update } = self.current()?;
                volume.edit(vnode, update).remove_xattr(name).map(drop)
            }
            Item::Buckets { from, until, rest, buckets } => {
                self.buckets((from, until), rest, buckets)
            }
            Item::Blocks(run, first, count) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.blocks(&mut current.vnode, run, first, count, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Data(first, data) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.data(&mut current.vnode, first, data, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Packed(first, frame) => {
                let mut current = self.current.take().ok_or(NO_VNODE)?;
                self.building.packed(&mut current.vnode, first, frame, &mut current.update)?;
                self.current = Some(current);
                Ok(())
            }
            Item::Whole(used) => {
                if self.current()?.vnode.status.used != used {
                    return Err(StoreError::NoStream(
                        "the size or usage of a body differs from its vnode",
                    ));
                }
                self.commit()
            }
        }
    }

    fn current(&mut self) -> Result<&mut Current<'a>> {
        self.current.as_mut().ok_or(NO_VNODE)
    }

    /// Commits what the items so far changed in the vnode.
    fn commit(&mut self) -> Result<()> {
        let Some(Current { vnode, mut update }) = self.current.take() else { return Ok(()) };
        update.put_vnode(&vnode);
        self.building.volume.commit(update)
    }

    /// Prepares a vnode with the wanted status, to which further items belong.
    fn begin(&mut self, wanted: Vnode, form: BodyForm<'_>) -> Result<()> {
        let volume = self.building.volume;
        let (size, no) = (wanted.status.size, wanted.no());
        let fid = Fid { volume: volume.id(), ..wanted.status.fid };
        let mut old = volume.vnode(no)?;
        let mut generations = 0;
        if let Some(other) =
            old.take_if(|old| old.status.fid != fid || old.status.kind != wanted.status.kind)
        {
            // In another history of the tree another file had the number.
            generations = other.generations;
            self.remove(no)?;
        }
        let mut update = Update::within(Some(self.scope));
        let mut vnode = wanted;
        vnode.status.fid = fid;
        vnode.has_xattr = false;
        let keeps_xattrs = self.building.source == Source::Feed;
        vnode.status.data_version = vnode.status.data_version.raised(self.shift);
        vnode.status.status_version = vnode.status.status_version.raised(self.shift);
        match old {
            None => {
                let directory = vnode.status.kind == Kind::Directory;
                vnode.status.size = if directory { size } else { 0 };
                vnode.status.used = initial_used(vnode.status.kind);
                vnode.generations = generations;
                update.create_vnode(&vnode);
            }
            Some(old) => {
                if keeps_xattrs {
                    vnode.has_xattr = old.has_xattr;
                } else {
                    for (name, _) in volume.xattrs(&old)? {
                        update.set_xattr(no, &name, None);
                    }
                }
                (vnode.status.size, vnode.status.used) = (old.status.size, old.status.used);
                (vnode.place, vnode.generations, vnode.own_since) =
                    (old.place, old.generations, old.own_since);
                vnode.handed = old.handed && self.building.source == Source::Over;
                if old.status.links == 0 && vnode.status.links > 0 {
                    update.remove_orphan(no);
                }
            }
        }
        if vnode.status.links == 0 {
            update.add_orphan(no);
        }
        self.building.mode = self.building.begin(&mut vnode, form, size, &mut update)?;
        self.current = Some(Current { vnode, update });
        Ok(())
    }

    /// Removes the vnode with all its records.
    fn remove(&mut self, no: VnodeNo) -> Result<()> {
        let volume = self.building.volume;
        let Some(vnode) = volume.vnode(no)? else { return Ok(()) };
        self.clear_buckets(no, (0, u64::MAX), &BTreeSet::new())?;
        let mut update = Update::within(Some(self.scope));
        volume.drop_vnode(&vnode, &mut update)?;
        if vnode.status.links == 0 {
            update.remove_orphan(no);
        }
        volume.commit(update)
    }

    /// Removes vnodes that the stream skips: from the last one that it named to this one,
    /// exclusive.
    fn clear_up_to(&mut self, end: VnodeNo) -> Result<()> {
        let tree = self.building.volume.tree();
        let mut gone = Vec::new();
        if self.next < end {
            tree.each_vnode_no(self.next, &mut |no| {
                if no >= end {
                    return ControlFlow::Break(());
                }
                gone.push(no);
                ControlFlow::Continue(())
            })?;
        }
        gone.into_iter().try_for_each(|no| self.remove(no))
    }

    fn buckets(
        &mut self,
        range: (u64, u64),
        rest: bool,
        buckets: Vec<(u64, Vec<BucketEntry>)>,
    ) -> Result<()> {
        let volume = self.building.volume;
        let no = self.current()?.vnode.no();
        if !no.is_directory() {
            return Err(StoreError::NoStream("entries of a vnode that is not a directory"));
        }
        if rest {
            let stay = buckets.iter().map(|(hash, _)| *hash).collect();
            self.clear_buckets(no, range, &stay)?;
        }
        let mut update = Update::within(Some(self.scope));
        buckets.into_iter().for_each(|(hash, bucket)| update.set_bucket(no, hash, bucket));
        volume.commit(update)
    }

    /// Removes the directory's buckets in the range except those that stay.
    fn clear_buckets(
        &self,
        dir: VnodeNo,
        (from, until): (u64, u64),
        stay: &BTreeSet<u64>,
    ) -> Result<()> {
        let volume = self.building.volume;
        let mut gone = Vec::new();
        volume.tree().each_bucket(dir, from, &mut |hash, bucket| {
            if hash >= until {
                return ControlFlow::Break(());
            }
            if !bucket.is_empty() && !stay.contains(&hash) {
                gone.push(hash);
            }
            ControlFlow::Continue(())
        })?;
        for hashes in gone.chunks(BUCKETS_AT_ONCE) {
            let mut update = Update::within(Some(self.scope));
            hashes.iter().for_each(|hash| update.set_bucket(dir, *hash, Vec::new()));
            volume.commit(update)?;
        }
        Ok(())
    }
}

const NO_VNODE: StoreError = StoreError::NoStream("an item that belongs to no vnode");
