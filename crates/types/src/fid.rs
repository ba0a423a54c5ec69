//! Names of files that never change meaning: volume, vnode, uniquifier.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};

/// A volume's number. Never reused for another volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// A file's slot in its volume. Directories have odd numbers, everything else even ones; the root
/// directory is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VnodeNo(pub u64);

impl VnodeNo {
    /// The root directory of every volume.
    pub const ROOT: VnodeNo = VnodeNo(1);

    /// Whether this slot holds a directory: its number is odd.
    pub const fn is_directory(self) -> bool {
        self.0 % 2 == 1
    }
}

/// Distinguishes the files of one slot; the part of a fid that cannot be guessed ([`RunKey`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uniquifier(pub u64);

impl Uniquifier {
    /// The low half, which is never 0: by this servers of AFS know the file.
    pub const fn shortened(self) -> Uniquifier {
        let low = self.0 & u32::MAX as u64;
        Uniquifier(if low == 0 { 1 } else { low })
    }
}

/// One file for ever: its volume, its slot there, and a number that only callers who may find the
/// file learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// The volume that holds the file.
    pub volume: VolumeId,
    /// The slot in the volume.
    pub vnode: VnodeNo,
    /// Distinguishes this file from earlier ones of the slot.
    pub unique: Uniquifier,
}

impl Fid {
    /// Bytes of a fid on the native wire: three little-endian 64-bit numbers.
    pub const WIRE_BYTES: usize = 3 * size_of::<u64>();

    /// In a chained request: the file that the previous member of the chain answered with.
    pub const CURRENT: Fid =
        Fid { volume: VolumeId(u64::MAX), vnode: VnodeNo(u64::MAX), unique: Uniquifier(u64::MAX) };

    /// A fid from its three numbers.
    pub const fn new(volume: u64, vnode: u64, unique: u64) -> Self {
        Fid { volume: VolumeId(volume), vnode: VnodeNo(vnode), unique: Uniquifier(unique) }
    }

    /// Stands for the rights that all callers have in a volume: no file has this fid. A client that
    /// learns rights there gets a promise for it, which a change of them breaks.
    pub const fn rights(volume: VolumeId) -> Self {
        Fid { volume, vnode: VnodeNo(0), unique: Uniquifier(0) }
    }

    /// The file that a new vnode slot holds; slot 0 is the root's, and a slot may be [`short`].
    /// `key`: that of the slot's run.
    ///
    /// [`short`]: SHORT_SLOT
    pub fn of_slot(volume: VolumeId, slot: u64, directory: bool, key: RunKey) -> Self {
        let vnode = VnodeNo(2 * (slot & !SHORT_SLOT) + u64::from(directory));
        let unique = key.unique(vnode);
        let unique = if slot & SHORT_SLOT == 0 { unique } else { unique.shortened() };
        Fid { volume, vnode, unique }
    }

    /// The slot that the vnode takes.
    pub const fn slot(self) -> u64 {
        self.vnode.0 / 2
    }

    /// The same file to a caller who may know that it is there and may not reach it: the listing of
    /// a directory without search permission.
    pub const fn masked(self) -> Self {
        Fid { unique: Uniquifier(0), ..self }
    }

    /// Whether the fid is [`masked`](Fid::masked): it names no file, and no call accepts it.
    pub const fn is_masked(self) -> bool {
        self.unique.0 == 0
    }

    /// The root directory of `volume`.
    pub const fn root(volume: VolumeId) -> Self {
        Fid { volume, vnode: VnodeNo::ROOT, unique: Uniquifier(1) }
    }
}

/// Consecutive slots that share a [`RunKey`]. A session that makes files itself gets whole runs, so
/// the key of a run reveals no other session's file.
pub const RUN_SLOTS: u32 = 2048;

/// Added to a slot's number, this marks one whose file gets a [`shortened`](Uniquifier::shortened)
/// uniquifier, so that it has the same fid at servers of AFS: in volumes in which access lists
/// decide fids are no secrets. No slot has so high a number.
pub const SHORT_SLOT: u64 = 1 << 62;

/// Makes the fids of one run of slots.
///
/// In a volume with mode bits a path protects what is below it: a file of mode 0644 in a directory
/// of mode 0700 is closed to others. The server sees fids and no paths. So a fid proves that its
/// user was let through the path: its uniquifier is a keyed function (SipHash-2-4) of the vnode,
/// under a key that is derived from a secret of the volume and the number of the run. Guessing one
/// file's fid takes 2^63 attempts on average.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RunKey(pub u128);

impl RunKey {
    /// The key of the run that `slot` lies in. `secret`: never leaves the volume's server.
    pub fn derive(secret: u128, volume: VolumeId, slot: u64) -> RunKey {
        let mut hasher = SipHasher128::new_with_keys(secret as u64, (secret >> 64) as u64);
        // The secret also hashes names, whose input begins otherwise: no name has a slash.
        hasher.write(b"/fid");
        hasher.write(&volume.0.to_le_bytes());
        hasher.write(&(slot / u64::from(RUN_SLOTS)).to_le_bytes());
        RunKey(hasher.finish128().as_u128())
    }

    fn unique(self, vnode: VnodeNo) -> Uniquifier {
        let made = SipHasher24::new_with_keys(self.0 as u64, (self.0 >> 64) as u64)
            .hash(&vnode.0.to_le_bytes());
        // 0 is a masked fid's, the highest that of `Fid::CURRENT`.
        Uniquifier(made.clamp(1, u64::MAX - 1))
    }
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey(..)")
    }
}

/// Slots of one volume that a session may assign to new files: a run, or the rest of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnodeSlots {
    /// The first slot.
    pub first: u64,
    /// The number of consecutive slots.
    pub count: u32,
    /// Makes the fids of the slots.
    pub key: RunKey,
}

impl VnodeSlots {
    /// Whether the slot is one of them.
    pub const fn contains(self, slot: u64) -> bool {
        slot >= self.first && slot - self.first < self.count as u64
    }

    /// Removes the first slot and returns it.
    pub fn take(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        self.first += 1;
        Some(self.first - 1)
    }

    /// The file that one of these slots holds.
    pub fn fid(&self, volume: VolumeId, slot: u64, directory: bool) -> Fid {
        Fid::of_slot(volume, slot, directory, self.key)
    }
}

/// The reason why a text is no [`Fid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fid is three numbers with dots between them")]
pub struct FidError;

impl FromStr for Fid {
    type Err = FidError;

    fn from_str(text: &str) -> Result<Fid, FidError> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(volume)), Some(Ok(vnode)), Some(Ok(unique)), None) => {
                Ok(Fid::new(volume, vnode, unique))
            }
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
    fn fids_of_other_volumes_and_runs_reveal_nothing() {
        let made = |secret, volume: u64, slot, directory| {
            let volume = VolumeId(volume);
            Fid::of_slot(volume, slot, directory, RunKey::derive(secret, volume, slot)).unique
        };
        let run = u64::from(RUN_SLOTS);
        let all = [
            made(7, 1, 5, false),
            made(8, 1, 5, false),
            made(7, 2, 5, false),
            made(7, 1, 6, false),
            made(7, 1, 5, true),
            made(7, 1, 5 + run, false),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert_eq!(RunKey::derive(7, VolumeId(1), 5), RunKey::derive(7, VolumeId(1), run - 1));
        assert_ne!(RunKey::derive(7, VolumeId(1), run - 1), RunKey::derive(7, VolumeId(1), run));
    }

    #[test]
    fn a_short_slot_is_the_same_vnode_with_half_a_uniquifier() {
        let (volume, key) = (VolumeId(7), RunKey(0x1234_5678_9abc_def0));
        for (slot, directory) in [(1, false), (5, true), (1 << 40, false)] {
            let long = Fid::of_slot(volume, slot, directory, key);
            let short = Fid::of_slot(volume, slot | SHORT_SLOT, directory, key);
            assert_eq!((short.vnode, short.unique), (long.vnode, long.unique.shortened()));
            assert_eq!(short.slot(), slot);
            assert!(short.unique.0 <= u32::MAX.into() && short.unique != long.unique);
        }
        assert_eq!(Uniquifier(7 << 32).shortened(), Uniquifier(1), "0 is a masked fid's");
        let mut run = VnodeSlots { first: 100 | SHORT_SLOT, count: 2, key };
        let slot = run.take().unwrap();
        assert_eq!(run.fid(volume, slot, false).vnode, VnodeNo(200));
        assert!(run.contains(101 | SHORT_SLOT) && !run.contains(101));
    }

    #[test]
    fn the_printed_form_parses() {
        let fid = Fid::new(7, u64::MAX, 3);
        assert_eq!(fid.to_string().parse(), Ok(fid));
        for bad in
            ["", "7", "7.1", "7.1.1.1", "7.1.", "7.1.x", "-7.1.1", "7.1.18446744073709551616"]
        {
            assert_eq!(bad.parse::<Fid>(), Err(FidError), "{bad}");
        }
    }
}
