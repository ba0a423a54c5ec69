//! Everything from system calls to the store, through the kernel: volumes of a service in this
//! process, really mounted.
//!
//! Needs root and `/dev/fuse`; reports and passes without them.

#![allow(clippy::unwrap_used)] // All of it is tests.

mod abroad;
mod blanks;
mod cached;
mod cell;
mod coherence;
mod data;
mod dynroot;
mod fleet;
mod forerunner;
mod handles;
mod helper;
mod leaving;
mod links;
mod listings;
mod locks;
mod moves;
mod names;
mod passthrough;
mod permits;
mod read_times;
mod servers;
mod signals;
mod standing;
mod sweeps;
mod sysname;
mod transport;
mod volumes;
mod xattrs;

const TRANSPORT: mount::KernelTransport = mount::KernelTransport::Device;
const FLAT: bool = false;
