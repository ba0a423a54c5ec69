//! A session from the application's side: it sends calls and returns answers across lost
//! connections and server restarts.
//!
//! `venus` calls [`Remote`] and implements [`Events`]. Anything that can run `vice` may be a
//! `Remote`: a [`Session`] over sockets, or the service in the same process.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod cancel;
mod cell;
mod channel;
pub mod clock;
mod config;
mod core;
mod effective_identity;
mod identity;
mod locate;
mod options;
mod pending;
mod reclaim;
mod remote;
mod replica_watch;
mod reply_reader;
mod server_addresses;
mod server_connection;
mod session;
mod shared;
mod threads;
mod token_wallet;
mod unpack;
mod volume;

pub use cancel::{Cancel, CancelGuard};
pub use cell::{Cell, Dial, KnownServer, dial_addresses};
pub use config::SessionConfig;
pub use effective_identity::{EffectiveIdentity, Ids};
pub use fabric::{Endpoint, EndpointError};
pub use identity::{ClientIdentity, IdentityError};
pub use options::ClientOptions;
pub use remote::{BreakAck, CallError, Events, Remote, Reply};
pub use session::Session;
pub use token_wallet::{TicketSource, TokenWallet};
pub use volume::RemoteVolume;
