//! Everything from system calls to the store, through the kernel: volumes of a service in this
//! process, really mounted.
//!
//! `RIALTO_KERNEL=flat` and `RIALTO_KERNEL=uring` run the same tests on mounts of other kinds;
//! `scripts/unit.sh` runs all three.
//!
//! Needs root and `/dev/fuse`, and for io_uring a kernel that offers it; reports and passes without
//! them.

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
mod gated;
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

use mount::KernelTransport;

/// The kind of all mounts of a run, which `RIALTO_KERNEL` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountKind {
    /// One mount for each volume, with requests that come through `/dev/fuse`.
    Usual,
    /// `flat`: one mount shows all volumes (`flat_tree.rs`), and the tests' root of a mount is the
    /// root of a volume below its first.
    Flat,
    /// `uring`: requests come by io_uring.
    Uring,
}

fn kind() -> MountKind {
    match std::env::var("RIALTO_KERNEL").as_deref() {
        Ok("flat") => MountKind::Flat,
        Ok("uring") => MountKind::Uring,
        Ok("") | Err(_) => MountKind::Usual,
        Ok(other) => panic!("RIALTO_KERNEL is flat or uring, not {other}"),
    }
}

fn is_flat() -> bool {
    kind() == MountKind::Flat
}

fn transport() -> KernelTransport {
    if kind() == MountKind::Uring { KernelTransport::Uring } else { KernelTransport::Device }
}
