//! Ways to show who one is. All end in a token (`docs/spec/access.md`). No sockets: what comes and
//! goes is handed in and out.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod kerberos;
mod mint;
mod password;

pub use password::{BadPassword, FREE, Passwords, TooMany, WAIT_MAX};

pub use kerberos::{KerberosError, PendingTicket, Service};
pub use mint::{LIFETIME, RENEWABLE, SigningKeys, TokenIssuer};
