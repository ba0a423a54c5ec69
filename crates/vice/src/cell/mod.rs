//! The cell as this server knows it: the database ([`CellLink`]), callers' principals
//! ([`Identities`]), the rules of fences and administrators ([`Rules`]), and copies of the database
//! ([`CellCopies`]).
//!
//! Imports nothing of this crate. Other layers ask here for what depends on the
//! database; this layer knows no volumes, files or sessions.

mod copies;
mod identities;
mod join_attempts;
mod link;
mod lookups;
mod principals;
mod rules;

pub(crate) use copies::CellCopies;
pub use identities::Identities;
pub(crate) use join_attempts::JoinAttempts;
pub(crate) use link::CellLink;
pub use link::{CellAccess, CellOpening};
pub(crate) use lookups::{LookingUp, LookupThreads, MemoryOnly, may_ask};
pub use lookups::{Lookup, LookupHook};
pub use principals::Principals;
pub(crate) use rules::{Rules, RulesInUse, is_above_fences, key_of};
