//! Version collection: removes the records of one vnode that no volume shows, after the volume of
//! an epoch was removed.
//!
//! Of the records under one prefix (one version per epoch), each shown epoch sees the newest that
//! is not newer than itself; the head sees the newest. Versions without a reader are removed, and
//! so are tombstones that hide nothing any more. Body files are removed with the last record that
//! names them.
//!
//! Writers continue meanwhile. They put and erase only records of the head's epoch, which hide the
//! same records as before. So older records may be removed concurrently; of the head's own records
//! only tombstones are removed, without writers. A seal would add a view of the head: it waits.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use types::VnodeNo;

use super::state::TreeState;
use super::writer::RecordWriter;
use crate::BodyLocation;
use crate::error::Result;
use crate::format::header::TreeHeader;
use crate::format::key::{self, kind};
use crate::format::record;
use crate::media::engine::{Batch, Engine, prefix_end};

/// About how many records are read while a seal waits: a large directory has many.
const RECORDS_AT_ONCE: usize = 4096;

/// A record: its key, and whether it is a tombstone.
struct Version {
    key: Vec<u8>,
    tombstone: bool,
}

impl Version {
    fn epoch(&self) -> u64 {
        key::epoch_of(&self.key)
    }

    /// The prefix that all versions share.
    fn prefix(&self) -> &[u8] {
        &self.key[..self.key.len() - key::EPOCH_BYTES]
    }
}

/// The shown epochs, ascending; `u64::MAX` is the head.
struct Shown(Vec<u64>);

impl Shown {
    fn of(header: &TreeHeader) -> Shown {
        let head = header.head.has_head().then_some(u64::MAX);
        Shown(header.sealed.iter().map(|sealed| sealed.epoch).chain(head).collect())
    }

    /// The versions, of a list from newest to oldest, that are to be removed. `sees` returns
    /// whether a shown epoch reads such records at all; `below`: whether the tree's origin has
    /// records under them.
    fn unseen<'a>(
        &self,
        versions: &'a [Version],
        below: bool,
        sees: &dyn Fn(u64, &Version) -> bool,
    ) -> Vec<&'a Version> {
        let seen = |at: usize| {
            let newer = at.checked_sub(1).map_or(u64::MAX, |newer| versions[newer].epoch() - 1);
            let version = &versions[at];
            // The head sees the newest, whatever its epoch.
            let mut seers = self.0.iter().filter(|shown| {
                if **shown == u64::MAX {
                    at == 0
                } else {
                    (version.epoch()..=newer).contains(*shown)
                }
            });
            seers.any(|shown| sees(*shown, version))
        };
        let mut gone: Vec<&Version> = Vec::new();
        // From the oldest on: a tombstone with nothing below it hides nothing.
        let mut hides = below;
        for at in (0..versions.len()).rev() {
            let keep = seen(at) && (!versions[at].tombstone || hides);
            if keep {
                hides = !versions[at].tombstone;
            } else {
                gone.push(&versions[at]);
            }
        }
        gone
    }
}

impl TreeState {
    /// Removes the unseen records of the vnode, with attributes and body; entries only if
    /// `with_entries` is set.
    pub(crate) fn tidy(&self, no: VnodeNo, with_entries: bool) -> Result<()> {
        let mut tombstones = Vec::new();
        {
            let _no_seal = self.write();
            let _no_copy = self.media.gates.gate((self.id, no)).write_arc();
            self.tidy_file(no, &mut tombstones)?;
        }
        if with_entries {
            let entries = key::of_vnode(kind::ENTRIES, self.id, no);
            self.tidy_entries(&entries, &mut tombstones)?;
        }
        self.drop_tombstones(&tombstones)
    }

    /// The same for one bucket of a directory.
    pub(crate) fn tidy_bucket(&self, dir: VnodeNo, hash: u64) -> Result<()> {
        let mut tombstones = Vec::new();
        self.tidy_entries(&key::entries(self.id, dir, hash), &mut tombstones)?;
        self.drop_tombstones(&tombstones)
    }

    fn tidy_entries(&self, prefix: &[u8], tombstones: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut from = Some(prefix.to_vec());
        while let Some(next) = from.take() {
            let _no_seal = self.write();
            let header = self.header.lock().stored.clone();
            let mut batch = Batch::default();
            let (versions, rest) = self.versions(&next, &prefix_end(prefix), RECORDS_AT_ONCE)?;
            self.tidy_versions(&header, &versions, &|_, _| true, tombstones, &mut batch)?;
            self.apply_some(&batch)?;
            from = rest;
        }
        Ok(())
    }

    /// Everything except entries: vnode, body and attributes are consistent with each other.
    fn tidy_file(&self, no: VnodeNo, tombstones: &mut Vec<Vec<u8>>) -> Result<()> {
        let header = self.header.lock().stored.clone();
        let mut batch = Batch::default();
        let vnodes = self.vnode_records(no)?;
        let versions: Vec<Version> = vnodes
            .iter()
            .map(|(key, vnode)| Version { key: key.clone(), tombstone: vnode.is_none() })
            .collect();
        let gone = self.tidy_versions(&header, &versions, &|_, _| true, tombstones, &mut batch)?;
        let places = |keep: bool| -> Vec<BodyLocation> {
            let of = vnodes.iter().filter(|(key, _)| gone.contains(key) != keep);
            of.filter_map(|(_, vnode)| Some(vnode.as_ref()?.place)).collect()
        };
        let (kept, mut dropped) = (places(true), places(false));
        dropped.retain(|place| !kept.contains(place));
        dropped.dedup();
        let head = self.head();
        dropped
            .into_iter()
            .for_each(|place| RecordWriter::new(&head, &mut batch).discard(no, place));
        // An epoch that shows the vnode in a file, or without a body, does not read an inline one;
        // but the head's own may be the backup of one in a file.
        let inline = |epoch: u64| {
            let vnode = vnodes.iter().find(|(key, _)| key::epoch_of(key) <= epoch);
            vnode.is_some_and(|(_, vnode)| {
                vnode.as_ref().is_some_and(|vnode| vnode.place == BodyLocation::Inline)
            })
        };
        let sees_inline = |epoch: u64, version: &Version| {
            inline(epoch) || (epoch == u64::MAX && version.epoch() > header.floor())
        };
        let everybody = |_: u64, _: &Version| true;
        for (kind, sees) in [
            (kind::INLINE, &sees_inline as &dyn Fn(u64, &Version) -> bool),
            (kind::SUMS, &everybody),
            (kind::XATTR, &everybody),
        ] {
            let prefix = key::of_vnode(kind, self.id, no);
            let (versions, _) = self.versions(&prefix, &prefix_end(&prefix), usize::MAX)?;
            self.tidy_versions(&header, &versions, sees, tombstones, &mut batch)?;
        }
        self.apply_some(&batch)
    }

    /// Records from `from` to `end`, about `max` of them but all versions of each; and the start of
    /// the next ones.
    fn versions(
        &self,
        from: &[u8],
        end: &[u8],
        max: usize,
    ) -> Result<(Vec<Version>, Option<Vec<u8>>)> {
        let mut found: Vec<Version> = Vec::new();
        let mut rest = None;
        self.media.engine.scan(from, end, &mut |key, value| {
            let version = Version { key: key.to_vec(), tombstone: record::is_tombstone(value) };
            if found.len() >= max
                && found.last().is_some_and(|last| last.prefix() != version.prefix())
            {
                rest = Some(version.key);
                return ControlFlow::Break(());
            }
            found.push(version);
            ControlFlow::Continue(())
        })?;
        Ok((found, rest))
    }

    /// Adds the removal of unseen versions to the batch and returns them. Another step removes
    /// tombstones of the head's epoch.
    fn tidy_versions(
        &self,
        header: &TreeHeader,
        versions: &[Version],
        sees: &dyn Fn(u64, &Version) -> bool,
        tombstones: &mut Vec<Vec<u8>>,
        batch: &mut Batch,
    ) -> Result<Vec<Vec<u8>>> {
        let (shown, head) = (Shown::of(header), self.head());
        let mut gone = Vec::new();
        for versions in versions.chunk_by(|one, next| one.prefix() == next.prefix()) {
            // Only a tombstone hides records of the origin.
            let below = versions.iter().any(|version| version.tombstone)
                && head.inherits(versions[0].prefix())?;
            for version in shown.unseen(versions, below, sees) {
                let written_now = version.epoch() == header.epoch && header.head.has_head();
                if written_now && version.tombstone {
                    tombstones.push(version.key.clone());
                } else if !written_now {
                    batch.delete(&version.key);
                    gone.push(version.key.clone());
                }
            }
        }
        Ok(gone)
    }

    /// Removes tombstones that hide nothing, without writers.
    fn drop_tombstones(&self, keys: &[Vec<u8>]) -> Result<()> {
        for keys in keys.chunks(RECORDS_AT_ONCE) {
            let _nobody_writes = self.writers.write();
            let mut batch = Batch::default();
            for key in keys {
                let end = prefix_end(&key[..key.len() - key::EPOCH_BYTES]);
                let (versions, _) = self.versions(key, &end, usize::MAX)?;
                let alone = versions.iter().all(|version| version.tombstone && version.key == *key);
                let hides = self.head().inherits(&key[..key.len() - key::EPOCH_BYTES])?;
                if alone && !versions.is_empty() && !hides {
                    batch.delete(key);
                }
            }
            self.apply_some(&batch)?;
        }
        Ok(())
    }

    fn apply_some(&self, batch: &Batch) -> Result<()> {
        if !batch.is_empty() {
            self.media.apply(batch)?;
            self.media.garbage.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}
