//! Names and statuses under promises. Imports `base` and `data`.

pub(crate) mod compact_nodes;
pub(crate) mod delegation;
pub(crate) mod delegations;
pub(crate) mod dir_names;
pub(crate) mod identity;
pub(crate) mod known_rights;
pub(crate) mod local_answers;
pub(crate) mod made_up;
pub(crate) mod names;
pub(crate) mod node_tables;
pub(crate) mod nodes;
pub(crate) mod slots;
