//! Volumes on their way: what a sealed epoch has is read in parts at one place, and put together
//! again at another.
//!
//! Model. A *part* says what is in a sealed epoch and was not in an older one of the same tree
//! (`since`; 0: everything), from one [`StreamCursor`] to another, in the order of vnodes
//! (`codec.rs`). The side that reads keeps nothing (`outgoing.rs`): any copy that shows both epochs
//! can go on where another one stopped, since epochs, numbers of vnodes, hashes of names and places
//! in buckets are the same in all copies of a tree.
//!
//! The side that takes it (`incoming.rs`) applies parts to the head of a tree that no volume shows.
//! Each thing in a part is said as it is in the end, not as a difference to what is there, but for
//! blocks that are *the same as in `since`*, which are taken from that epoch. So to apply a part
//! twice does nothing more, and parts up to an epoch T1, given up somewhere in the middle, leave
//! nothing that parts up to a later T2 do not set right: whatever was changed up to T1 was changed
//! up to T2. Where everything is sent, what lies between the things of a part is gone. `body.rs`
//! puts bodies together. What comes in over a volume that people use is `over.rs`.

mod body;
mod codec;
mod incoming;
mod outgoing;
mod over;

pub use codec::{PART_BYTES_MIN, StreamHead, StreamPart};
pub use incoming::{FinishAs, IncomingInfo, IncomingState};
pub(crate) use incoming::{Incoming, end_progress, get_progress};
pub(crate) use over::{Under, orphans_of};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use codec::{rewritten, sealed};
