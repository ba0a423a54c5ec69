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
/// More numbers of files than a lost volume gave after its last copy. Should it have given more,
/// files of both are told apart by their uniquifiers, which are random. Each number is two vnodes',
/// and AFS's clients know vnodes below 2^32: 128 takeovers reach that.
pub(crate) const LOST_SLOTS: u64 = 1 << 24;

/// The first epoch of the generation after that of `epoch`.
pub(crate) fn next(epoch: u64) -> u64 {
    (generation(epoch) + 1) * EPOCHS_IN_GENERATION
}

/// The first epoch that a copy counts itself within a generation, when it is refilled by a server
/// that does not count epochs. No tree has been sealed so often, so no other server has an epoch
/// with that number: one that is asked for what changed since then refuses.
const OWN_EPOCHS: u64 = EPOCHS_IN_GENERATION / 2;

/// The epoch with which a copy begins to be refilled, whose next one would be `epoch`.
pub(crate) fn own_epoch(epoch: u64) -> u64 {
    // The present one may have been begun by an attempt that was broken off.
    (epoch + 1).max(generation(epoch) * EPOCHS_IN_GENERATION + OWN_EPOCHS)
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
    fn epochs_that_a_copy_counts_itself_are_its_own() {
        let first = own_epoch(2);
        assert_eq!(
            [first, own_epoch(first), own_epoch(first + 7)],
            [OWN_EPOCHS, OWN_EPOCHS + 1, OWN_EPOCHS + 8]
        );
        assert_eq!(raise(2, first), 0, "it is the same generation");
        assert_eq!(own_epoch(next(first)), next(first) + OWN_EPOCHS);
    }

    #[test]
    fn only_older_generations_are_raised() {
        let (first, second) = (next(0), next(next(0)));
        assert_eq!((first, second), (EPOCHS_IN_GENERATION, 2 * EPOCHS_IN_GENERATION));
        assert_eq!(next(first + 7), second);
        assert_eq!([raise(1, 9), raise(first, first + 9)], [0, 0]);
        assert_eq!([raise(9, first), raise(9, second + 1)], [LOST_VERSIONS, 2 * LOST_VERSIONS]);
    }
}
