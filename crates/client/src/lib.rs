//! A session from the application's side: calls go in, answers come out, whatever happens to connections and servers.
//!
//! [`Remote`] is what `venus` builds on, [`Events`] is what it implements. Anything that can run `vice` may be a
//! `Remote`: a session over sockets, or the service in the same process.

mod cancel;
pub mod clock;
mod remote;

pub use cancel::{Cancel, CancelGuard};
pub use remote::{CallError, Events, Remote, Reply};
