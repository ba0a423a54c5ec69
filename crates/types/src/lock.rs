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
