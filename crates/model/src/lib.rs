//! Reference models: the required behaviour, so plain that it can be checked by reading.
//!
//! [`ModelTree`] is the file service for one volume with everything in ordered maps. It does no
//! I/O, discards nothing, has no promises, and executes one [`types::Call`] at a time. Tests run
//! the real service beside it and compare.

mod access;
mod body;
mod data;
mod entries;
mod lists;
mod make;
mod rename;
mod status;
mod tree;
mod xattr;

pub use body::ModelBody;
pub use lists::List;
pub use tree::{Content, ModelNode, ModelTree};
