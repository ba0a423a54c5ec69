//! Byte-range and whole-file locks.

/// The two lock families of POSIX systems; they do not conflict with each other. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LockFamily {
    /// `fcntl` byte ranges: one owner's ranges merge and split.
    Posix = 1,
    /// `flock` whole files.
    Flock = 2,
}

/// Shared or exclusive. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// Any number of holders.
    Shared = 1,
    /// One holder.
    Exclusive = 2,
}

/// The owner of a lock within one session: the kernel's lock owner number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner(pub u64);

/// Bytes from `start` to `end`, both included; `end == u64::MAX` reaches past every end of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

impl ByteRange {
    /// Every byte that a file can have.
    pub const ALL: ByteRange = ByteRange { start: 0, end: u64::MAX };

    /// Whether a byte lies in both.
    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether every byte of the other lies in this one.
    pub const fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes of this range that do not lie in the other: a part before it, and one behind it.
    pub fn without(self, other: ByteRange) -> impl Iterator<Item = ByteRange> {
        let before = (self.start < other.start)
            .then(|| ByteRange { start: self.start, end: self.end.min(other.start - 1) });
        let behind = (self.end > other.end)
            .then(|| ByteRange { start: self.start.max(other.end + 1), end: self.end });
        before.into_iter().chain(behind)
    }
}

/// How a session comes to a persistent lock (docs/spec/sharing.md). Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PersistHow {
    /// No persistent lock of these bytes ended abnormally.
    New = 1,
    /// The same owner had the lock at the server that the volume came from.
    Claims = 2,
    /// The owner repairs what an abnormal end left behind.
    Repairs = 3,
}

/// The lock that prevents another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// The bytes that it covers.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Process id as its client reported it; 0 if the holder is at another client.
    pub pid: u32,
}
