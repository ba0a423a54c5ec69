//! The past of a world, as far as a crash may bring it back; what was made stable is no past any
//! more.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::VnodeNo;

use super::world::{Model, Op};

/// A stretch of a body that is compared in one step.
const STRETCH_BYTES: usize = 4096;

/// Model: each change of the world adds a state. A crash leaves one of the states, as a whole
/// (ST-1), but for the bytes of body files, each of which may be as any version since the body was
/// stable had it.
pub(crate) struct History {
    /// After each commit since the last sync; the first is known to be on disk.
    states: Vec<Model>,
    /// The bytes that a body went through since it was stable.
    versions: BTreeMap<VnodeNo, Vec<Arc<Vec<u8>>>>,
}

impl History {
    /// All of the model is on disk.
    pub(crate) fn of(model: &Model) -> History {
        let versions =
            model.files.iter().map(|(no, file)| (*no, vec![file.bytes.clone()])).collect();
        History { states: vec![model.clone()], versions }
    }

    /// The world was as `earlier` and is as `now`.
    pub(crate) fn came(&mut self, earlier: &Model, now: &Model) {
        self.may_pass(earlier, now);
        self.states.push(now.clone());
    }

    /// What is written on the way from `earlier` to `now` may be in bodies, though no commit says
    /// so.
    pub(crate) fn may_pass(&mut self, earlier: &Model, now: &Model) {
        for (no, file) in &now.files {
            let before =
                || earlier.files.get(no).map(|file| file.bytes.clone()).unwrap_or_default();
            let versions = self.versions.entry(*no).or_insert_with(|| vec![before()]);
            if versions.last() != Some(&file.bytes) {
                versions.push(file.bytes.clone());
            }
        }
    }

    /// A write of body `no` was abandoned; `now` has what it left.
    pub(crate) fn abandoned(&mut self, no: VnodeNo, earlier: &Model, now: &Model) {
        assert!(self.may_be(no, &now.files[&no].bytes), "an abandoned write left something else");
        self.came(earlier, now);
    }

    /// `op`, which made the last state, returned: a crash can no longer bring back what it made
    /// stable.
    pub(crate) fn forget(&mut self, op: &Op) {
        let stable = |versions: &mut Vec<_>| drop(versions.drain(..versions.len() - 1));
        match op {
            Op::Commit(file) => {
                if let Some(no) = self.last().no(*file) {
                    stable(self.versions.get_mut(&no).unwrap());
                    self.settle();
                }
            }
            Op::Fork(_) if !self.has_other_volumes() => {}
            Op::SyncAll | Op::Clone(_) | Op::Fork(_) => {
                self.versions.values_mut().for_each(stable);
                self.settle();
            }
            Op::Sync => self.settle(),
            // If there is none, nothing is done, and nothing synced.
            Op::RemoveClone(_) | Op::RenameClone(..) | Op::ForkClone(..) | Op::RemoveFork(_)
                if self.has_other_volumes() =>
            {
                self.settle();
            }
            _ => {}
        }
    }

    /// The last state is on disk, but for bytes of bodies.
    fn settle(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn last(&self) -> &Model {
        self.states.last().expect("there is always a state")
    }

    /// Whether the last step made or removed volumes.
    fn has_other_volumes(&self) -> bool {
        let before = self.states.len().checked_sub(2).map(|before| &self.states[before]);
        let now = self.last();
        before.is_some_and(|before| (&before.clones, &before.others) != (&now.clones, &now.others))
    }

    /// Whether `found`, whose bodies are records or files, is what a crash may have left.
    pub(crate) fn explains(&self, found: &Model, is_inline: &dyn Fn(VnodeNo) -> bool) -> bool {
        self.states.iter().any(|state| self.is_state(found, state, is_inline))
    }

    fn is_state(&self, found: &Model, state: &Model, is_inline: &dyn Fn(VnodeNo) -> bool) -> bool {
        found.names == state.names
            && found.clones == state.clones
            && found.others == state.others
            && found.files.iter().all(|(no, file)| {
                let known = &state.files[no];
                let exact = file.bytes == known.bytes;
                let may = || {
                    file.bytes.len() == known.bytes.len()
                        && !is_inline(*no)
                        && self.may_be(*no, &file.bytes)
                };
                file.xattrs == known.xattrs && (exact || may())
            })
    }

    /// Whether each byte is as some version had it, or zero where some version had nothing.
    fn may_be(&self, no: VnodeNo, bytes: &[u8]) -> bool {
        let versions = &self.versions[&no];
        bytes.chunks(STRETCH_BYTES).enumerate().all(|(number, stretch)| {
            let start = number * STRETCH_BYTES;
            let whole =
                |version: &Arc<Vec<u8>>| version.get(start..start + stretch.len()) == Some(stretch);
            let byte_of =
                |version: &Arc<Vec<u8>>, at: usize| version.get(start + at).copied().unwrap_or(0);
            versions.iter().rev().any(whole)
                || stretch
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| versions.iter().any(|version| byte_of(version, at) == *byte))
        })
    }

    /// The states, for a failed test.
    pub(crate) fn brief(&self) -> Vec<Brief> {
        self.states.iter().map(brief).collect()
    }
}

/// Names, and the vnode and size of each.
type Brief = Vec<(String, VnodeNo, usize)>;

pub(crate) fn brief(model: &Model) -> Brief {
    let size = |no| model.files.get(no).map_or(0, |file| file.bytes.len());
    model
        .names
        .iter()
        .map(|(name, no)| (String::from_utf8_lossy(name).into_owned(), *no, size(no)))
        .collect()
}
