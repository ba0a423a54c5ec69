//! Steps of operations that the leader does wrongly on purpose, to prove that the checks notice.
//! The code that ships is unchanged: its calls are dropped or altered on their way, and it receives
//! answers of success.

use celldb::CellDb;
use types::{Finish, SiteKind, VolumeCall, VolumeGroup, VolumeId};

use super::world::World;

/// One broken step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StepMutation {
    /// A volume that moves is not frozen, and changes during the last fetch are lost.
    SkipHold,
    /// A frozen volume serves again before it is removed, and changes after that are lost.
    ServeBoth,
    /// A read-write volume that was moved or removed stays at its server.
    KeepVolume,
    /// A volume is removed before the other server has it.
    LoseVolume,
    /// The record of a removed volume stays in the database.
    KeepRecord,
    /// Claims are never removed.
    KeepClaims,
    /// The database lists sites with a later epoch than they show.
    SayLater,
    /// Temporary volumes stay.
    KeepFleeting,
    /// The data of a restore over a volume is dropped, and the answer is success.
    SkipRestore,
}

impl StepMutation {
    /// All mutations.
    pub const ALL: [StepMutation; 9] = [
        StepMutation::SkipHold,
        StepMutation::ServeBoth,
        StepMutation::KeepVolume,
        StepMutation::LoseVolume,
        StepMutation::KeepRecord,
        StepMutation::KeepClaims,
        StepMutation::SayLater,
        StepMutation::KeepFleeting,
        StepMutation::SkipRestore,
    ];

    /// The calls that replace this one; without any, the answer is success.
    pub(super) fn bend(self, world: &World, call: &VolumeCall) -> Vec<VolumeCall> {
        let is_written = |id: &VolumeId| world.trees.contains_key(id);
        match (self, call) {
            (StepMutation::SkipHold, VolumeCall::Hold { millis: 1.., .. }) => Vec::new(),
            (StepMutation::ServeBoth, VolumeCall::Remove { id }) if is_written(id) => {
                vec![VolumeCall::Hold { id: *id, millis: 0 }, call.clone()]
            }
            (StepMutation::KeepVolume, VolumeCall::Remove { id }) if is_written(id) => Vec::new(),
            (StepMutation::KeepFleeting, VolumeCall::Remove { id }) if !is_written(id) => {
                Vec::new()
            }
            (StepMutation::LoseVolume, VolumeCall::Hold { id, millis: 1.. }) => {
                vec![VolumeCall::Remove { id: *id }]
            }
            (
                StepMutation::SkipRestore,
                VolumeCall::Finish { partition, tree, finish: Finish::Over { .. } },
            ) => {
                vec![VolumeCall::Finish {
                    partition: *partition,
                    tree: *tree,
                    finish: Finish::Nothing,
                }]
            }
            _ => vec![call.clone()],
        }
    }

    /// The record that is written into the database in place of this one.
    pub(super) fn bend_record(self, db: &impl CellDb, group: &VolumeGroup) -> VolumeGroup {
        let mut bent = group.clone();
        match self {
            StepMutation::KeepClaims if bent.busy.is_none() => {
                bent.busy =
                    db.group_of(group.read_write).ok().flatten().and_then(|old| old.record.busy);
            }
            StepMutation::SayLater => {
                let shown = bent
                    .sites
                    .iter_mut()
                    .filter(|site| site.kind == SiteKind::ReadOnly && site.epoch != 0);
                shown.for_each(|site| site.epoch += 1);
            }
            _ => {}
        }
        bent
    }

    /// Returns whether records stay in the database.
    pub(super) fn keeps_record(self) -> bool {
        self == StepMutation::KeepRecord
    }
}
