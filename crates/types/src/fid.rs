//! Names of files that never change meaning: volume, vnode, uniquifier.

use std::fmt;
use std::str::FromStr;

/// A volume, by number. Never used again for another volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// A file's slot in its volume. Directories have odd numbers, everything else even ones; the root directory is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VnodeNo(pub u64);

impl VnodeNo {
    /// The root directory of every volume.
    pub const ROOT: VnodeNo = VnodeNo(1);

    /// Whether this slot holds a directory, which its parity tells.
    pub const fn is_directory(self) -> bool {
        self.0 % 2 == 1
    }
}

/// How often the slot has been used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uniquifier(pub u64);

/// One file for ever: its volume, its slot there, and how often the slot has been used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// The volume that holds the file.
    pub volume: VolumeId,
    /// The slot in the volume.
    pub vnode: VnodeNo,
    /// Tells this file from earlier users of the slot.
    pub unique: Uniquifier,
}

impl Fid {
    /// Bytes of a fid on the native wire: three little-endian 64-bit numbers.
    pub const WIRE_BYTES: usize = 3 * size_of::<u64>();

    /// In a chained request: the file that the previous member of the chain answered with.
    pub const CURRENT: Fid = Fid { volume: VolumeId(u64::MAX), vnode: VnodeNo(u64::MAX), unique: Uniquifier(u64::MAX) };

    /// A fid from its three numbers.
    pub const fn new(volume: u64, vnode: u64, unique: u64) -> Self {
        Fid { volume: VolumeId(volume), vnode: VnodeNo(vnode), unique: Uniquifier(unique) }
    }

    /// Stands for what everybody may do in a volume: no file has this fid, but it is promised to who is told of rights there, and broken when they change.
    pub const fn rights(volume: VolumeId) -> Self {
        Fid { volume, vnode: VnodeNo(0), unique: Uniquifier(0) }
    }

    /// The file that a new vnode slot holds; slot 0 is the root's.
    pub const fn of_slot(volume: VolumeId, slot: u64, directory: bool) -> Self {
        Fid { volume, vnode: VnodeNo(2 * slot + directory as u64), unique: Uniquifier(slot + 1) }
    }

    /// The slot that the vnode takes.
    pub const fn slot(self) -> u64 {
        self.vnode.0 / 2
    }

    /// The root directory of `volume`.
    pub const fn root(volume: VolumeId) -> Self {
        Fid { volume, vnode: VnodeNo::ROOT, unique: Uniquifier(1) }
    }
}

/// Slots of one volume that a session may give to new files itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnodeSlots {
    /// The first one.
    pub first: u64,
    /// How many follow each other.
    pub count: u32,
}

impl VnodeSlots {
    /// Whether the slot is one of them.
    pub const fn contains(self, slot: u64) -> bool {
        slot >= self.first && slot - self.first < self.count as u64
    }
}

/// Why some text is no [`Fid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fid is three numbers with dots between them")]
pub struct FidError;

impl FromStr for Fid {
    type Err = FidError;

    fn from_str(text: &str) -> Result<Fid, FidError> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(volume)), Some(Ok(vnode)), Some(Ok(unique)), None) => Ok(Fid::new(volume, vnode, unique)),
            _ => Err(FidError),
        }
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.volume.0, self.vnode.0, self.unique.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let fid = Fid::new(7, u64::MAX, 3);
        assert_eq!(fid.to_string().parse(), Ok(fid));
        for bad in ["", "7", "7.1", "7.1.1.1", "7.1.", "7.1.x", "-7.1.1", "7.1.18446744073709551616"] {
            assert_eq!(bad.parse::<Fid>(), Err(FidError), "{bad}");
        }
    }
}
