//! Histories as in the crash suite, with longer bodies.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::tests::world::{Op, op};

/// The steps of the longest history.
const OPS_MAX: usize = 40;

/// Bodies of several MiB too, and more work for the sweep.
fn long_op() -> impl Strategy<Value = Op> {
    let (file, offset, length) = (0..6_u8, 0..2_u64 << 20, 100_000..3_u64 << 20);
    prop_oneof![
        16 => op().prop_filter("the power goes by itself", |op| !matches!(op, Op::PowerLoss(_))),
        1 => (file.clone(), offset, length.clone(), 1..=255_u8)
            .prop_map(|(file, offset, length, byte)| Op::Write { file, offset, length, byte }),
        1 => (file.clone(), length, 1..=255_u8)
            .prop_map(|(file, length, byte)| Op::Append { file, length, byte }),
        1 => file.prop_map(Op::Remove),
        1 => Just(Op::Sweep),
    ]
}

/// Whether the operation syncs, or makes the store sync.
fn is_sync(op: &Op) -> bool {
    let makes_volumes = matches!(op, Op::Clone(_) | Op::RemoveClone(_) | Op::RenameClone(..))
        || matches!(op, Op::Fork(_) | Op::ForkClone(..) | Op::RemoveFork(_));
    makes_volumes || matches!(op, Op::Commit(_) | Op::Sync | Op::SyncAll | Op::Kill | Op::Turn(_))
}

/// The operations of a seed, with this part of those that sync.
pub(super) fn ops(seed: u64, syncs: f64) -> Vec<Op> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut coin = SmallRng::seed_from_u64(seed);
    let mut ops = Vec::new();
    while ops.len() < OPS_MAX {
        let op = long_op().new_tree(&mut runner).unwrap().current();
        if is_sync(&op) && !coin.random_bool(syncs) {
            continue;
        }
        let next = follower(&op).filter(|_| coin.random());
        ops.extend([Some(op), next].into_iter().flatten());
    }
    ops.truncate(coin.random_range(1..=OPS_MAX));
    ops
}

/// An operation that often follows, since the order of the two matters to a crash.
fn follower(op: &Op) -> Option<Op> {
    match *op {
        // Changes a stable body.
        Op::Commit(file) => Some(Op::Write { file, offset: 5_000, length: 50_000, byte: 255 }),
        // Removes the file of a body.
        Op::Remove(_) | Op::Rename(..) => Some(Op::Sweep),
        _ => None,
    }
}
