//! Generations of a tree's epochs.
//!
//! Model. The upper half of an epoch's number counts how often the tree was *taken over*: a copy of
//! one of its sealed epochs became the read-write volume, because the former one was lost with its
//! server (`volume/take_over.rs`). The lost volume may have had epochs, files and versions of
//! files that no copy knows and clients remember. So a new generation begins far above all of
//! them: with its epochs (the first one of the generation), with the numbers of its files
//! ([`LOST_SLOTS`]), and with versions: each record of an older generation shows versions that are
//! higher by [`LOST_VERSIONS`] for each generation between it and the reader.
//!
//! Nothing is rewritten, so a takeover costs the same for every size. Readers of an epoch compute
//! the same versions in all copies of the tree, because epochs and records have the same numbers
//! there (VO-7).

use types::{EPOCHS_IN_GENERATION, generation};

/// More changes of one file than a lost volume had after its last copy.
const LOST_VERSIONS: u64 = 1 << 32;
/// More numbers of files than a lost volume gave after its last copy. Mounts use numbers of vnodes
/// from 2^47 on for themselves (`venus/names/made_up.rs`): 16,384 takeovers reach them.
pub(crate) const LOST_SLOTS: u64 = 1 << 32;

/// The first epoch of the generation after that of `epoch`.
pub(crate) fn next(epoch: u64) -> u64 {
    (generation(epoch) + 1) * EPOCHS_IN_GENERATION
}

/// How much higher versions are for readers of the epoch `shown` than in a record of the epoch
/// `written`.
pub(crate) fn raise(written: u64, shown: u64) -> u64 {
    debug_assert!(written <= shown, "VO-1: nobody reads records of later epochs");
    generation(shown).saturating_sub(generation(written)) * LOST_VERSIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_generations_are_raised() {
        let (first, second) = (next(0), next(next(0)));
        assert_eq!((first, second), (EPOCHS_IN_GENERATION, 2 * EPOCHS_IN_GENERATION));
        assert_eq!(next(first + 7), second);
        assert_eq!([raise(1, 9), raise(first, first + 9)], [0, 0]);
        assert_eq!([raise(9, first), raise(9, second + 1)], [LOST_VERSIONS, 2 * LOST_VERSIONS]);
    }
}
