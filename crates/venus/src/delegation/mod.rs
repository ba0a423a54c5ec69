//! .

pub(crate) mod changes;
pub(crate) mod delegations;
pub(crate) mod rights;
