//! A session from the application's side: it sends calls and returns answers across lost
//! connections and server restarts.
//!
//! `venus` calls [`Remote`] and implements [`Events`]. Anything that can run `vice` may be a
//! `Remote`: a [`Session`] over sockets, or the service in the same process.
//!
//! Layers, from top to bottom:
//!
//! - `cell`: the servers of a cell, and a volume wherever it is
//! - `session`: one session over sockets
//! - `chain_link`, `config`, `remote`, `token_wallet`: the interfaces
//! - `completions`, `reply`: outcomes of calls
//! - `cancel`, `clock`, `effective_identity`, `identity`, `options`: small values
//! - `kept`: the records that a session leaves to the process that succeeds this one

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod cancel;
mod cell;
mod chain_link;
pub mod clock;
mod completions;
mod config;
mod effective_identity;
mod identity;
mod kept;
mod options;
mod remote;
mod reply;
mod session;
mod token_wallet;

pub use cancel::{Cancel, CancelGuard};
pub use cell::{Cell, Dial, KnownServer, RemoteVolume, dial_addresses};
pub use completions::{Completed, CompletionGroup};
pub use config::SessionConfig;
pub use effective_identity::{EffectiveIdentity, Ids};
pub use fabric::{Endpoint, EndpointError};
pub use identity::{ClientIdentity, IdentityError};
pub use options::ClientOptions;
pub use remote::{Association, BreakAck, ConnectionReport, DoneChange, Events, Remote, Submitted};
pub use reply::{CallError, Reply};
pub use session::Session;
pub use token_wallet::{TicketSource, TokenWallet};
