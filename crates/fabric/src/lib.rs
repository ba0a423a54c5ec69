//! Drivers that move bytes: frames over TCP and Unix stream sockets, and descriptors beside them.
//!
//! A frame is a header of fixed size, a message, and a payload. This room knows how to find a
//! frame's end (its owner says how a header is measured) and moves each part without copying the
//! payload: it leaves from where it lies, with header and message in one system call, and arrives
//! in memory of exactly its size. What the parts mean is `dafs`.
//!
//! [`Connection`] is the socket, [`Outbox`] what waits to leave through it, [`Inbox`] what has come
//! in.

// Libraries tell through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod connection;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inbox;
mod listener;
mod outbox;
mod reserved;
pub mod tls;

pub use connection::{Connection, ConnectionOptions, PeerProcess, Ready, WaitFor};
pub use endpoint::{Endpoint, EndpointError};
pub use inbox::{Extent, Filled, FrameError, FrameLimits, Inbox, Measure, ReceivedFrame};
pub use listener::Listener;
pub use outbox::{OutFrame, Outbox};
pub use reserved::{RESERVED_PORTS_END, connect as connect_reserved};

/// Bytes of every frame's header.
pub const HEADER_BYTES: usize = 64;
