//! Rules that the simulation can break on purpose, to prove that its checks notice. Each is a fault
//! *of the code*; [`crate::fault`] has faults of the world.

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mutation {
    /// A client acknowledges breaks and still uses what they end (CB-1).
    IgnoreBreaks,
    /// The server counts breaks as acknowledged as soon as it sends them (CB-1).
    AckAtOnce,
    /// A client caches answers that a break overtook (CB-3).
    IgnoreSnapshots,
    /// A client trusts its cache and its locks for four times its lease (CB-4).
    TrustTooLong,
    /// The server ends the sessions of silent clients before their leases end (CB-4).
    GiveUpEarly,
    /// A restarted server does not wait for promises of earlier sessions (CB-5).
    NoGrace,
    /// The server executes repeated requests again (EO-1).
    ForgetReplies,
    /// The server answers stable writes and commits before they are on disk (DU-1).
    PretendStable,
    /// A killed client's successor does not know which requests had no answer (EO-1).
    ForgetRequests,
    /// A client keeps its locks over a restart of the server without claiming them (LK-1).
    KeepLocksSilently,
    /// The server forgets which removed files are open (HO-1).
    ForgetHolds,
    /// The server answers other clients without recalling a delegation first (DE-2).
    SkipRecall,
    /// A client continues to answer changes itself after its delegation is recalled (DE-3).
    AnswerAfterRecall,
    /// A client returns its delegation before it has sent its journal (DE-2).
    ReturnEarly,
    /// A restarted server lets other clients read before holders of delegations have sent their
    /// journals (DE-1).
    NoReadGrace,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Mutation; 15] = [
        Mutation::IgnoreBreaks,
        Mutation::AckAtOnce,
        Mutation::IgnoreSnapshots,
        Mutation::TrustTooLong,
        Mutation::GiveUpEarly,
        Mutation::NoGrace,
        Mutation::ForgetReplies,
        Mutation::PretendStable,
        Mutation::ForgetRequests,
        Mutation::KeepLocksSilently,
        Mutation::ForgetHolds,
        Mutation::SkipRecall,
        Mutation::AnswerAfterRecall,
        Mutation::ReturnEarly,
        Mutation::NoReadGrace,
    ];
}
