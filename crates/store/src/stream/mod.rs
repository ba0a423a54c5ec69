//! Streams: the content of a sealed epoch is read in parts on one partition, and put together
//! again on another.
//!
//! Model. A *part* contains what a sealed epoch has and an older one of the same tree (`since`; 0:
//! everything) had not, from one [`StreamCursor`] to another, in the order of vnodes (`codec.rs`).
//! The sender stores no state (`outgoing.rs`): any copy that shows both epochs can continue where
//! another one stopped, since epochs, numbers of vnodes, hashes of names and places in buckets are
//! the same in all copies of a tree.
//!
//! The receiver (`incoming.rs`, `apply.rs`) applies parts to the head of a tree that no volume
//! shows. A part gives the final state of each item, not a difference to the state here, except for
//! blocks that are *the same as in `since`*, which come from that epoch. So a part may be applied
//! twice, and after parts up to an epoch T1, abandoned at any point, parts up to a later T2 correct
//! everything: every change up to T1 is also a change up to T2. A full stream removes whatever lies
//! between its items. `body.rs` puts bodies together. `over.rs` handles streams over a volume in
//! use. Imports all lower layers, down from `volume/`.

mod apply;
mod body;
mod codec;
mod incoming;
mod outgoing;
mod over;
mod progress;

pub(crate) use apply::apply_entry;
pub(crate) use codec::{BodyForm, Item, ItemsOut, Run, get_bytes, get_item, put_bytes};
pub use codec::{PART_BYTES_MIN, StreamHead, StreamPart};
pub use incoming::{FinishAs, IncomingStreams};
pub use outgoing::{changes_part, packed_changes_part};
pub use progress::IncomingInfo;
pub(crate) use progress::get_progress;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use codec::{rewritten, sealed};
