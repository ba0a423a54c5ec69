//! Opens at the server: the uses of a file's data that an open has and denies, and its key
//! (docs/spec/sharing.md).

use std::fmt;

/// Uses of a file's data. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataUse {
    /// None.
    Nothing = 0,
    /// Reading.
    Read = 1,
    /// Writing.
    Write = 2,
    /// Reading and writing.
    Both = 3,
}

impl DataUse {
    /// Every value.
    pub const ALL: [DataUse; 4] = [DataUse::Nothing, DataUse::Read, DataUse::Write, DataUse::Both];

    /// The value with the given wire value.
    pub fn from_wire(byte: u8) -> Option<DataUse> {
        DataUse::ALL.into_iter().find(|one| *one as u8 == byte)
    }

    /// Whether a use is in both.
    pub const fn meets(self, other: DataUse) -> bool {
        self as u8 & other as u8 != 0
    }

    /// Whether all uses of the other are in this one.
    pub const fn contains(self, other: DataUse) -> bool {
        self as u8 & other as u8 == other as u8
    }

    /// Whether reading is in it.
    pub const fn reads(self) -> bool {
        self.meets(DataUse::Read)
    }

    /// Whether writing is in it.
    pub const fn writes(self) -> bool {
        self.meets(DataUse::Write)
    }
}

/// The key that all who have a file open share. It is not printed: it lets in those who know it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShareKey(pub [u8; 16]);

impl fmt::Debug for ShareKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareKey(..)")
    }
}

/// The number of an open. A server gives no number twice, also not after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_meet_and_contain_each_other_as_sets() {
        let in_set = |set: DataUse, one: DataUse| set as u8 & one as u8 != 0;
        for a in DataUse::ALL {
            assert_eq!(DataUse::from_wire(a as u8), Some(a));
            assert_eq!(
                (a.reads(), a.writes()),
                (in_set(a, DataUse::Read), in_set(a, DataUse::Write))
            );
            for b in DataUse::ALL {
                let both = |one| in_set(a, one) && in_set(b, one);
                assert_eq!(a.meets(b), both(DataUse::Read) || both(DataUse::Write));
                let missing = |one| in_set(b, one) && !in_set(a, one);
                assert_eq!(a.contains(b), !missing(DataUse::Read) && !missing(DataUse::Write));
            }
        }
        assert_eq!(DataUse::from_wire(4), None);
        assert_eq!(format!("{:?}", ShareKey([7; 16])), "ShareKey(..)");
    }
}
