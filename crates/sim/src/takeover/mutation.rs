//! Rules of standbys that the simulation breaks on purpose, to prove that its checks notice. The
//! code that ships is unchanged: its messages, its database and its clock are bent.

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TakeoverMutation {
    /// A server takes what it sends to a standby for applied there (SB-1).
    TrustTheWire,
    /// A standby reads in the database that it is in step although it is not (SB-2).
    BelieveOutOfStep,
    /// The database changes a group whatever revision was expected (SB-2).
    IgnoreRevision,
    /// A server serves on though its standbys are silent (SB-3).
    NoFence,
    /// A volume that took over serves at once (SB-4).
    NoWaitForLease,
    /// The new server knows no replies of the former one (SB-5).
    ForgetReplies,
    /// A client is not told which changes an asynchronous standby lacks.
    HideLosses,
    /// A standby drops what it applied when the answer to its takeover is lost.
    DropCopy,
    /// A volume with locks serves as soon as its former server is told to give it up.
    IgnoreLocks,
    /// A client takes answers of the former server while it compares its changes.
    TakeLateAnswers,
}

impl TakeoverMutation {
    /// All mutations.
    pub const ALL: [TakeoverMutation; 10] = [
        TakeoverMutation::TrustTheWire,
        TakeoverMutation::BelieveOutOfStep,
        TakeoverMutation::IgnoreRevision,
        TakeoverMutation::NoFence,
        TakeoverMutation::NoWaitForLease,
        TakeoverMutation::ForgetReplies,
        TakeoverMutation::HideLosses,
        TakeoverMutation::DropCopy,
        TakeoverMutation::IgnoreLocks,
        TakeoverMutation::TakeLateAnswers,
    ];
}
