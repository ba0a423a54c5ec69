//! The past of a world, as far as a crash may restore it; a sync removes the past of what it made
//! stable.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::VnodeNo;

use super::world::{Model, Op};

/// The bytes of a body that one step compares.
const STRETCH_BYTES: usize = 4096;

/// Model: each change of the world adds a state. A crash leaves one of the states as a whole
/// (ST-1), except for the bytes of body files: each byte may be that of any version since the body
/// was stable.
pub(crate) struct History {
    /// The states after each commit since the last sync; the first is on disk.
    states: Vec<Model>,
    /// The versions of a body since it was stable.
    versions: BTreeMap<VnodeNo, Vec<Arc<Vec<u8>>>>,
}

impl History {
    /// A history in which all of the model is on disk.
    pub(crate) fn of(model: &Model) -> History {
        let versions =
            model.files.iter().map(|(no, file)| (*no, vec![file.bytes.clone()])).collect();
        History { states: vec![model.clone()], versions }
    }

    /// Records the change from `earlier` to `now`.
    pub(crate) fn came(&mut self, earlier: &Model, now: &Model) {
        self.may_pass(earlier, now);
        self.states.push(now.clone());
    }

    /// Bytes written on the way from `earlier` to `now` may be in bodies, though no commit has
    /// them.
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

    /// Records an abandoned write of body `no`; `now` has the bytes that it left.
    pub(crate) fn abandoned(&mut self, no: VnodeNo, earlier: &Model, now: &Model) {
        assert!(self.may_be(no, &now.files[&no].bytes), "an abandoned write left something else");
        self.came(earlier, now);
    }

    /// Records that `op`, which made the last state, returned: a crash can no longer restore what
    /// it replaced on disk.
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
            // Without such a volume the operation does nothing, and syncs nothing.
            Op::RemoveClone(_) | Op::RenameClone(..) | Op::ForkClone(..) | Op::RemoveFork(_)
                if self.has_other_volumes() =>
            {
                self.settle();
            }
            _ => {}
        }
    }

    /// The last state is on disk, except bytes of bodies.
    fn settle(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn last(&self) -> &Model {
        self.states.last().expect("there is always a state")
    }

    /// Whether the last step created or removed volumes.
    fn has_other_volumes(&self) -> bool {
        let before = self.states.len().checked_sub(2).map(|before| &self.states[before]);
        let now = self.last();
        before.is_some_and(|before| (&before.clones, &before.others) != (&now.clones, &now.others))
    }

    /// Whether a crash may have left `found`, whose bodies are records or files.
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

    /// Whether each byte is that of some version, or zero where some version had none.
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

    /// The states, for the report of a failed test.
    pub(crate) fn brief(&self) -> Vec<Brief> {
        self.states.iter().map(brief).collect()
    }
}

/// Names, each with its vnode and size.
type Brief = Vec<(String, VnodeNo, usize)>;

pub(crate) fn brief(model: &Model) -> Brief {
    let size = |no| model.files.get(no).map_or(0, |file| file.bytes.len());
    model
        .names
        .iter()
        .map(|(name, no)| (String::from_utf8_lossy(name).into_owned(), *no, size(no)))
        .collect()
}
