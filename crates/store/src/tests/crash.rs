//! Random operations against the model, with power lost at every sync point and between.
//!
//! After power loss the partition must have: names, sizes, attributes and inline bodies exactly as
//! after one of the commits since the last sync (ST-1, DU-1); in body files, each byte of one of
//! the versions that the body had since it was last stable; exact usage (ST-2); and no damage.

use proptest::prelude::*;
use types::VnodeNo;

use super::history::{History, brief};
use super::world::{Model, Op, World, op};
use crate::{MemMachine, OpenOptions, Partition, ScrubFinding};

/// A world with its past, as far as a crash could restore it.
struct Past {
    world: World,
    history: History,
}

impl Past {
    fn new() -> Past {
        Past::new_as(false)
    }

    fn new_as(encrypted: bool) -> Past {
        let world = World::new_as(encrypted);
        Past { history: History::of(&world.model), world }
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        if let Op::Turn(turn) = *op {
            self.step(&Op::SyncAll)?;
            self.world.turn(turn);
            self.begin_anew();
            return Ok(());
        }
        self.act(op)?;
        match *op {
            Op::Kill => self.world.reopen(self.world.machine.clone()),
            Op::PowerLoss(seed) => self.crash(seed)?,
            _ => self.check_after(self.world.machine.power_loss(12))?,
        }
        self.adopt_abandoned(op);
        prop_assert_eq!(self.world.found(), self.world.model.clone(), "after {:?}", op);
        Ok(())
    }

    /// Runs these in one scope, with a death of the process, and a loss of power, after each.
    fn gathered(&mut self, all: &[Op]) -> Result<(), TestCaseError> {
        // A loss of power may have left files without a record.
        let strays = self.world.scrub_all();
        self.world.scope = Some(self.world.partition.gather());
        let mut ops =
            all.iter().filter(|op| !matches!(op, Op::Kill | Op::PowerLoss(_) | Op::Turn(_)));
        let done: Result<(), TestCaseError> = ops.try_for_each(|op| {
            self.act(op)?;
            self.check_after(self.world.machine.power_loss(13))?;
            self.check_killed(&strays)?;
            self.adopt_abandoned(op);
            Ok(())
        });
        self.world.end_scope();
        done?;
        // All reported changes are there, even if the process dies.
        let world = self.world.on(self.world.machine.killed());
        prop_assert_eq!(world.found(), self.world.model.clone(), "after {:?}", all);
        prop_assert_eq!(world.scrub(), []);
        prop_assert_eq!(self.world.found(), self.world.model.clone(), "after {:?}", all);
        Ok(())
    }

    /// The process dies in a scope: some of its last commits are lost, in order, and nothing else
    /// is wrong.
    fn check_killed(&self, strays: &[ScrubFinding]) -> Result<(), TestCaseError> {
        let world = self.world.on(self.world.machine.killed());
        prop_assert_eq!(world.partition.boot_verifier(), self.world.partition.boot_verifier());
        let found = world.found();
        prop_assert!(self.explains(&world, &found), "found {:?}", brief(&found));
        prop_assert_eq!(world.scrub(), []);
        world.partition.sync_all().unwrap();
        prop_assert_eq!(world.found(), found);
        while world.partition.sweep(100).unwrap() > 0 {}
        let findings = world.scrub_all();
        prop_assert!(
            findings.iter().all(|found| strays.contains(found)),
            "left behind: {:?}",
            findings
        );
        Ok(())
    }

    /// Runs the operation, and checks the state that a loss of power at each sync on the way would
    /// leave.
    fn act(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let made = if matches!(op, Op::Create(_)) {
            self.world.volume.slots().unwrap().allocate(false).unwrap().0
        } else {
            VnodeNo(0)
        };
        let earlier = self.world.model.clone();
        // An abandoned write may still reach the disk.
        if let Op::Abandon { file, offset, length, byte } = *op {
            self.world.apply_model(&Op::Write { file, offset, length, byte }, made);
            self.history.may_pass(&earlier, &self.world.model);
            self.world.model.clone_from(&earlier);
        }
        self.world.apply_model(op, made);
        self.history.came(&earlier, &self.world.model);
        self.world.machine.keep_images();
        self.world.apply_store(op, &earlier, made);
        for image in self.world.machine.images() {
            self.check_after(image.power_loss(11))?;
        }
        self.history.forget(op);
        Ok(())
    }

    /// After an abandoned write the model takes over the actual bytes, if they are permitted.
    fn adopt_abandoned(&mut self, op: &Op) {
        let Op::Abandon { file, .. } = *op else { return };
        let Some(no) = self.world.no(file) else { return };
        let found = self.world.found().files.remove(&no).unwrap();
        let earlier = self.world.model.clone();
        self.world.model.files.insert(no, found);
        self.history.abandoned(no, &earlier, &self.world.model);
    }

    fn check_after(&self, machine: MemMachine) -> Result<(), TestCaseError> {
        let verifier = self.world.partition.boot_verifier();
        let world = self.world.on(machine);
        prop_assert_ne!(world.partition.boot_verifier(), verifier);
        let found = world.found();
        prop_assert!(
            self.explains(&world, &found),
            "found {:?}\nbut knew {:?}",
            brief(&found),
            self.history.brief()
        );
        prop_assert_eq!(world.scrub(), []);
        // Bodies in doubt get new sums, and files without a record are removed; nothing else
        // changes.
        world.partition.sync_all().unwrap();
        prop_assert_eq!(world.found(), found.clone());
        while world.partition.sweep(100).unwrap() > 0 {}
        prop_assert_eq!(world.found(), found);
        prop_assert_eq!(world.scrub_all(), []);
        Ok(())
    }

    fn explains(&self, world: &World, found: &Model) -> bool {
        self.history.explains(found, &|no| world.is_inline(no))
    }

    /// Loses power for good and continues with the resulting state.
    fn crash(&mut self, seed: u64) -> Result<(), TestCaseError> {
        let machine = self.world.machine.power_loss(seed);
        self.check_after(machine.power_loss(0))?;
        self.world.reopen(machine);
        let found = self.world.found();
        prop_assert!(self.explains(&self.world, &found));
        self.world.model = found;
        self.begin_anew();
        Ok(())
    }

    /// All of the present state is on disk.
    fn begin_anew(&mut self) {
        self.history = History::of(&self.world.model);
    }
}

/// `PROPTEST_CASES` sets the number of cases.
fn config() -> ProptestConfig {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64);
    ProptestConfig {
        cases,
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nothing_stable_is_lost_and_nothing_is_half_done(
        encrypted in any::<bool>(),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut past = Past::new_as(encrypted);
        for op in &ops {
            past.step(op)?;
        }
        prop_assert_eq!(past.world.scrub(), []);
        let usage = past.world.volume.usage();
        past.world.reopen(past.world.machine.clone());
        prop_assert_eq!(past.world.volume.usage(), usage);
        prop_assert_eq!(past.world.found(), past.world.model.clone());
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn scopes_lose_nothing_that_may_be_told(
        encrypted in any::<bool>(),
        scopes in prop::collection::vec((op(), prop::collection::vec(op(), 1..12)), 1..6),
    ) {
        let mut past = Past::new_as(encrypted);
        for (alone, together) in &scopes {
            past.step(alone)?;
            past.gathered(together)?;
        }
        prop_assert_eq!(past.world.scrub(), []);
        let usage = past.world.volume.usage();
        past.world.reopen(past.world.machine.clone());
        prop_assert_eq!(past.world.volume.usage(), usage);
    }
}

/// A case that the random test found.
#[test]
fn a_file_of_holes_lost_with_the_power_is_made_again() {
    for seed in 0..8 {
        let mut past = Past::new();
        let ops = [
            Op::Create(1),
            Op::Truncate { file: 1, size: 16385 },
            Op::Sync,
            Op::PowerLoss(seed),
            Op::SyncAll,
        ];
        ops.iter().for_each(|op| past.step(op).unwrap());
        assert_eq!(past.world.scrub(), []);
    }
}

#[test]
fn m9_without_a_boot_id_no_partition_opens() {
    let machine = MemMachine::new();
    let opened = || Partition::open_memory(&machine, OpenOptions::default());
    let verifier = opened().unwrap().boot_verifier();
    for how in [None, Some(std::io::ErrorKind::NotFound)] {
        machine.set_boot_unknown(Some(how));
        let message = opened().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("boot id") && message.contains("mount /proc"), "{message}");
    }
    machine.set_boot_unknown(None);
    assert_eq!(opened().unwrap().boot_verifier(), verifier, "the same boot");
    // A new verifier is on disk before the note of a failed sync is removed.
    machine.0.lock().sync_failed = true;
    machine.fail_syncs(true);
    assert!(opened().is_err());
    assert!(machine.0.lock().sync_failed);
    machine.fail_syncs(false);
    assert_ne!(opened().unwrap().boot_verifier(), verifier);
    assert!(!machine.0.lock().sync_failed);
}
