//! The knowledge of files without their bytes: statuses and names under promises, rights,
//! delegations, the kernel's references, opens.
//!
//! Model: `Names` has one lock over `Tables`, so entering an answer, taking a break and giving a
//! cached answer are one step each. Nothing here makes a call. Imports `base` and `data`.

mod compact_nodes;
mod delegation;
mod delegations;
mod dir_names;
mod identity;
mod knowledge;
mod known_rights;
mod local_answers;
mod made_up;
mod node_tables;
mod nodes;
mod noted_reads;
mod slots;

pub(crate) use self::compact_nodes::{NodeIndex, Plain, Plains};
pub(crate) use self::delegation::{Asked, Delegation, Generation, Listed};
pub(crate) use self::delegations::{Answered, Missing, wall};
pub(crate) use self::dir_names::{CachedName, DirNames, Wanted};
pub use self::identity::Identity;
pub(crate) use self::knowledge::{Names, Victim};
pub(crate) use self::known_rights::KnownRights;
pub(crate) use self::local_answers::{Local, LocalAnswers, LocalCaller, merged};
pub(crate) use self::made_up::{is_made_up, snapshot_point, snapshots_dir};
pub(crate) use self::node_tables::{Cached, Tables};
pub(crate) use self::nodes::Nodes;
pub(crate) use self::noted_reads::{NotedReads, SendReads};
pub(crate) use self::slots::Slots;
