//! Login methods. All end in a token (`docs/spec/access.md`). No sockets: the caller passes the
//! messages in and out.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod kerberos;
mod mint;
mod password;

pub use password::{BadPassword, FREE, Passwords, TooMany, WAIT_MAX};

pub use kerberos::{KerberosError, PendingTicket, Service, ServiceTicket, service_ticket};
pub use mint::{LIFETIME, RENEWABLE, SigningKeys, TokenIssuer};
