//! Standbys: copies of trees that follow each change of a read-write volume elsewhere.
//!
//! Model. The volume's partition logs what each commit changes in a *feed* in memory
//! (`tree/feed.rs`, begun by `begin.rs`, encoded by `codec.rs`). The standby's partition remembers
//! each tree for which it stands by (`f` record), and applies the entries to the head of that tree,
//! which no volume shows (`followed.rs`), until
//! it takes over (`take_over.rs`). `docs/spec/standby.md` has the protocol. Imports all lower
//! layers, down from `stream/`.

mod begin;
mod codec;
mod followed;
mod take_over;

pub use begin::TreeFeeds;
pub use codec::place_behind;
pub use followed::{StandbyState, Standbys};
