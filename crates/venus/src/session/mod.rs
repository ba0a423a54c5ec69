//! A volume's server and its instances, and the ground that all components of a volume stand on.
//!
//! `Chores` lists work for the background: a lower layer orders from upper ones through it. Imports
//! `base`, `data` and `names`.

mod chores;
mod ground;
mod server;

pub(crate) use self::chores::{Chores, Duties};
pub(crate) use self::ground::Ground;
pub(crate) use self::server::Server;
