//! Steps that are done wrongly on purpose by who leads an operation: the proof that the judge sees.
//! Nothing of the code that ships is changed: what it asks for is swallowed or bent on its way, and
//! it is told that all is well.

use celldb::CellDb;
use types::{Finish, SiteKind, VolumeCall, VolumeGroup, VolumeId};

use super::world::World;

/// One broken step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StepMutation {
    /// A volume that moves is not held, and what is changed while the last of it is fetched is
    /// lost.
    SkipHold,
    /// A volume that was held serves again before it is removed, and what is changed then is lost.
    ServeBoth,
    /// A read-write volume that was moved or removed stays at its server.
    KeepVolume,
    /// A volume is removed before the other server has it.
    LoseVolume,
    /// The record of a removed volume stays in the database.
    KeepRecord,
    /// Nobody takes claims off.
    KeepClaims,
    /// The database says that sites show a later epoch than they do.
    SayLater,
    /// What only exists while something is done stays.
    KeepFleeting,
    /// What came in over a volume is given up, and it is said that the volume shows it.
    SkipRestore,
}

impl StepMutation {
    /// Every one.
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

    /// What is asked of a server in place of this call; none: nothing, and the answer is that it is
    /// done.
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

    /// What is written into the database in place of this record.
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

    /// Whether a record is removed.
    pub(super) fn keeps_record(self) -> bool {
        self == StepMutation::KeepRecord
    }
}
