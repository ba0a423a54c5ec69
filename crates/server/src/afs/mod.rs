//! AFS's own clients: the ports on which they are served.
//!
//! Model. Five ports take calls: 7000 (files), 7002 (users and groups), 7003 (locations), 7005
//! (volumes) and 7007 (the state of the server); 7002 and 7003 also those of `udebug`. The thread
//! of a port only passes a call on; a thread of a pool reads the request, makes Rialto's calls, and
//! writes the answer (`serve`). The calls of a *foreign host* go through a session of the service
//! like those of any client, so its promises, locks and limits are those of a session. A host is a
//! client's address and port; for all but files, where nothing is promised, the address alone
//! (`hosts`).
//!
//! The driver speaks for such a client where Rialto's protocol asks more of it than AFS's: it
//! renews the session's lease, and acknowledges a break when the client has answered the callback
//! (`callbacks`). A client that does not answer has missed something: its session ends, so nothing
//! waits for it any more, and before it is served again it is told to trust nothing (AF-4).
//!
//! Layers, from top to bottom:
//!
//! - `ports`: the ports, and what is done in time
//! - `serve`: one call
//! - `callbacks`: calls to clients
//! - `foreign_caller`: Rialto's calls of a foreign caller
//! - `hosts`, `callers`: foreign hosts; users by their tickets
//! - `joined_cell`: the databases of a cell of OpenAFS, in which the server enters itself

mod callbacks;
mod callers;
mod foreign_caller;
mod hosts;
mod joined_cell;
mod other_servers;
mod ports;
mod serve;

pub(crate) use joined_cell::JoinedCell;
pub use ports::AfsOpenError;
pub(crate) use ports::{AfsPorts, AfsTimes};
