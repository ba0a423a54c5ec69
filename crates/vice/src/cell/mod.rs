//! The cell as this server knows it: the database ([`CellLink`]), callers' principals
//! ([`Identities`]), and the rules of fences and administrators ([`Rules`]).
//!
//! Imports nothing of this crate. Other layers ask here for what depends on the
//! database; this layer knows no volumes, files or sessions.

mod identities;
mod link;
mod lookups;
mod principals;
mod rules;

pub use identities::Identities;
pub(crate) use link::CellLink;
pub use link::{CellAccess, CellOpening};
pub(crate) use lookups::{LookingUp, LookupThreads, MemoryOnly};
pub use lookups::{Lookup, LookupHook};
pub use principals::Principals;
pub(crate) use rules::{Rules, RulesInUse, is_above_fences, key_of};
