//! Standbys of the volumes here, and the volumes elsewhere for which this server stands by
//! (`docs/spec/standby.md`).
//!
//! Model. At the volume's server each standby is in one of the stages of `stage.rs`. The standbys
//! of one volume, the replies that are held for them and their questions that wait are a `Feeding`
//! (`feeding.rs`), without locks, calls or the database. [`Feeds`] (`feeds.rs`) has one for each
//! volume that is fed, executes the calls, and tells the leases and the table of moves what
//! follows; `settle.rs` writes the group's record where the stages and the record differ. The one
//! place where replies are held is `Runner::finish`.
//!
//! At the standby's server a `Follower` (`follower.rs`) stands for each tree, without threads or
//! sockets: the driver sends its questions and runs its pulls. [`Followers`] (`followers.rs`) has
//! them all, so that an administrator's call can make one take over.
//!
//! The answers to questions are an `Envelope` with entries (`envelope.rs`).
//!
//! Order of locks: a follower, then the table of volumes, then the standbys of one volume, then
//! those of `sessions`.

mod envelope;
mod feeding;
mod feeds;
mod follower;
mod followers;
mod names;
mod settle;
mod stage;

use std::time::Duration;

pub(crate) use feeding::{HeldReply, Ripe};
pub(crate) use feeds::{Feeds, FeedsParts};
pub use follower::{StandbyQuestion, StandbyWork};
pub use followers::{Followers, StandbyAgent};

/// A server that has not heard from a standby in step for so long serves no client (SB-3). Counted
/// from when it sent the last answer that the standby has acknowledged.
const FENCE: Duration = Duration::from_secs(1);
/// A standby that has received nothing for so long tries to take over (SB-4).
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a question waits for something to answer.
const POLL: Duration = Duration::from_millis(300);

/// How long after its last answer, counted by another clock, clients may trust a server that was
/// fenced or lost (SB-4): until the fence, and a lease that began before. Clocks differ by 1 % at
/// most, which a 64th covers.
fn trusted_for(lease: Duration) -> Duration {
    (FENCE + lease) * 65 / 64
}

const _: () = assert!(POLL.as_millis() * 2 < FENCE.as_millis());
const _: () = assert!(FENCE.as_millis() < PATIENCE.as_millis());
