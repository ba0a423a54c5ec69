//! The health of a partition's disk (`docs/spec/health.md`).

/// The state of a partition's disk, as its server observes it (PH-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskHealth {
    /// Nothing is wrong.
    #[default]
    Well,
    /// Many of the last flushes took long.
    Slow,
    /// The disk reported an error.
    Failing,
}

impl DiskHealth {
    /// For people and programs.
    pub const fn word(self) -> &'static str {
        match self {
            DiskHealth::Well => "well",
            DiskHealth::Slow => "slow",
            DiskHealth::Failing => "failing",
        }
    }
}
