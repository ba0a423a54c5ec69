//! Trees: the records of all epochs of a read-write volume, and the state that its volumes share.
//!
//! Model. A *view* shows the records of one epoch (`view.rs`, and `origin.rs` for those of a tree
//! that began as an epoch of another); a *writer* changes those of the head (`writer.rs`). The
//! *state* of a tree (`state.rs`) is its header, its head, its slots for vnodes and the
//! lock of its writers; it exists once for all users (`trees.rs`). Epochs have generations
//! (`generation.rs`). Imports `format/` and `media/`.

pub(crate) mod facts;
pub(crate) mod feed;
pub(crate) mod generation;
pub(crate) mod origin;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod trees;
mod version_collection;
pub(crate) mod view;
pub(crate) mod writer;

pub use slots::SlotAllocator;
pub(crate) use state::TreeState;
pub(crate) use trees::Trees;
pub(crate) use view::EpochView;
pub(crate) use writer::RecordWriter;
