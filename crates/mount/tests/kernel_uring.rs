//! The same tests as `kernel`, with requests that come by io_uring.
//!
//! Needs root, `/dev/fuse`, and a kernel that offers it; reports and passes without them.

#![allow(clippy::unwrap_used)] // All of it is tests.

#[path = "kernel/abroad.rs"]
mod abroad;
#[path = "kernel/blanks.rs"]
mod blanks;
#[path = "kernel/cached.rs"]
mod cached;
#[path = "kernel/cell.rs"]
mod cell;
#[path = "kernel/coherence.rs"]
mod coherence;
#[path = "kernel/data.rs"]
mod data;
#[path = "kernel/dynroot.rs"]
mod dynroot;
#[path = "kernel/fleet.rs"]
mod fleet;
#[path = "kernel/forerunner.rs"]
mod forerunner;
#[path = "kernel/handles.rs"]
mod handles;
#[path = "kernel/helper.rs"]
mod helper;
#[path = "kernel/leaving.rs"]
mod leaving;
#[path = "kernel/links.rs"]
mod links;
#[path = "kernel/listings.rs"]
mod listings;
#[path = "kernel/locks.rs"]
mod locks;
#[path = "kernel/moves.rs"]
mod moves;
#[path = "kernel/names.rs"]
mod names;
#[path = "kernel/passthrough.rs"]
mod passthrough;
#[path = "kernel/permits.rs"]
mod permits;
#[path = "kernel/read_times.rs"]
mod read_times;
#[path = "kernel/servers.rs"]
mod servers;
#[path = "kernel/signals.rs"]
mod signals;
#[path = "kernel/standing.rs"]
mod standing;
#[path = "kernel/sysname.rs"]
mod sysname;
#[path = "kernel/transport.rs"]
mod transport;
#[path = "kernel/volumes.rs"]
mod volumes;
#[path = "kernel/xattrs.rs"]
mod xattrs;

const TRANSPORT: mount::KernelTransport = mount::KernelTransport::Uring;
const FLAT: bool = false;
