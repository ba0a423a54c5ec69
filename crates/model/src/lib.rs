//! Reference models: what the real thing has to do, said so plainly that it can be checked by
//! reading.
//!
//! [`ModelTree`] is the file service for one volume with everything in ordered maps. It does no
//! I/O, forgets nothing, knows no promises, and executes one [`types::Call`] at a time. Tests run
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
