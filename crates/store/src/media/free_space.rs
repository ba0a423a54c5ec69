//! The levels of free room on a disk.
//!
//! The end of the disk is reserved, in three steps, so that operations that free room still have
//! some. Bodies stop at the reserve, records at half of it, and everything at a quarter: the rest
//! is for the engine's log and tables, since an engine whose log finds no room cannot continue
//! (Debian's build of RocksDB aborts the process). The store stops at each step by itself; only
//! other programs on the same file system can take the rest, and when there is room again work
//! continues, because the store begins nothing that does not fit.

/// The smallest reserve, so that the engine can write its log and tables.
const RESERVE_BYTES_MIN: u64 = 64 << 20;
/// The largest reserve, also on large disks.
const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// Room on the file system below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The size of the file system in bytes.
    pub total_bytes: u64,
    /// Bytes that bodies may still use.
    pub free_bytes: u64,
}

/// The changes that the free room allows; later levels allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceLevel {
    /// All changes.
    Ample,
    /// No more bytes in body files.
    NoBodies,
    /// No more files either; removals and changes in place go on.
    NoRecords,
    /// No change at all.
    Nothing,
}

impl SpaceLevel {
    /// The level for a disk of this size with so much free room, in bytes.
    pub fn of(total_bytes: u64, free_bytes: u64) -> SpaceLevel {
        let reserve = reserve_bytes(total_bytes);
        match free_bytes {
            free if free >= reserve => SpaceLevel::Ample,
            free if free >= reserve / 2 => SpaceLevel::NoBodies,
            free if free >= reserve / 4 => SpaceLevel::NoRecords,
            _ => SpaceLevel::Nothing,
        }
    }
}

/// A hundredth of the disk within bounds, but never more than a quarter of it.
pub(crate) fn reserve_bytes(total: u64) -> u64 {
    (total / 100).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX).min(total / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_small_and_large_disks() {
        let mib = |count: u64| count << 20;
        for (total, reserve) in [(mib(128), mib(32)), (mib(1024), mib(64)), (1 << 40, 1 << 30)] {
            assert_eq!(SpaceLevel::of(total, total), SpaceLevel::Ample);
            assert_eq!(SpaceLevel::of(total, reserve), SpaceLevel::Ample);
            assert_eq!(SpaceLevel::of(total, reserve - 1), SpaceLevel::NoBodies);
            assert_eq!(SpaceLevel::of(total, reserve / 2 - 1), SpaceLevel::NoRecords);
            assert_eq!(SpaceLevel::of(total, reserve / 4 - 1), SpaceLevel::Nothing);
        }
        assert!(
            SpaceLevel::NoRecords > SpaceLevel::NoBodies
                && SpaceLevel::Nothing > SpaceLevel::NoRecords
        );
    }
}
