//! A cell of AFS whose databases are not Rialto's, as a client of its database servers; and volume
//! servers of AFS's protocol, as a client of them.
//!
//! Model. A cell has some database servers; each of them answers questions, and one, which they
//! elect, takes changes. A call goes to the server that answered last. One that does not answer, or
//! cannot at the moment, is passed over for the next. The caller proves itself with the cell's key,
//! and is a superuser there; without a key it is anonymous.
//!
//! - `databases`: the calls
//! - `listing`: all servers and entries of the location database
//! - `mirroring`: the changes that make a cell's databases like another one's
//! - `principals`: users and groups with their members
//! - `volumes`: where volumes are
//! - `volume_servers`: the calls to volume servers

// Libraries report through their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod code;
mod databases;
mod listing;
mod mirroring;
mod principals;
mod volume_servers;
mod volumes;

pub use code::AfsCode;
pub use databases::{AfsCell, AfsCellError};
pub use listing::{AfsServer, entries, next_number, servers};
pub use mirroring::{AfsChange, entry_changes, people_changes};
pub use principals::{AfsPrincipal, principals};
pub use volume_servers::{VolumeServerError, VolumeServers};
pub use volumes::{AfsSite, AfsVolume};
