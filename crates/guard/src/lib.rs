//! Who may do what: access lists, who is in which groups, tokens, the table of requests. No I/O and no clock (`docs/access.md`).

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod acl;
mod cps;
mod rights;

pub use acl::{ACL_BYTES_MAX, Acl, AclError, Entry};
pub use cps::Cps;
pub use rights::{Rights, RightsError};
