//! Rules that the harness can break on purpose: the proof that the checkers see. Each is a fault
//! *of the code*, where [`crate::fault`] has faults of the world.

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// A client acknowledges breaks and keeps what they end (CB-1).
    IgnoreBreaks,
    /// The server takes breaks for acknowledged as soon as it sends them (CB-1).
    AckAtOnce,
    /// A client caches answers that a break overtook (CB-3).
    IgnoreSnapshots,
    /// A client trusts its cache and its locks for four times its lease (CB-4).
    TrustTooLong,
    /// The server gives up on silent clients before their leases end (CB-4).
    GiveUpEarly,
    /// A server that restarts knows nothing of earlier sessions' promises (CB-5).
    NoGrace,
    /// The server executes repeated requests again (EO-1).
    ForgetReplies,
    /// The server answers stable writes and commits before they are on disk (DU-1).
    PretendStable,
    /// A client keeps its locks over a restart of the server without claiming them (LK-1).
    KeepLocksSilently,
    /// The server forgets which removed files are open (HO-1).
    ForgetHolds,
    /// The server gives others what a client has to itself without waiting for it (DE-2).
    SkipRecall,
    /// A client goes on answering itself when its delegation is wanted back (DE-3).
    AnswerAfterRecall,
    /// A client gives its delegation back before it has sent what it answered (DE-2).
    ReturnEarly,
    /// After a restart the server lets others read before those have spoken who may have changed
    /// things (DE-1).
    NoReadGrace,
}

impl Mutation {
    /// Every one.
    pub const ALL: [Mutation; 14] = [
        Mutation::IgnoreBreaks,
        Mutation::AckAtOnce,
        Mutation::IgnoreSnapshots,
        Mutation::TrustTooLong,
        Mutation::GiveUpEarly,
        Mutation::NoGrace,
        Mutation::ForgetReplies,
        Mutation::PretendStable,
        Mutation::KeepLocksSilently,
        Mutation::ForgetHolds,
        Mutation::SkipRecall,
        Mutation::AnswerAfterRecall,
        Mutation::ReturnEarly,
        Mutation::NoReadGrace,
    ];
}
