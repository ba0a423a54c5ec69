//! Drivers that move bytes: frames over TCP and Unix stream sockets, with descriptors.
//!
//! A frame is a header of fixed size, a message, and a payload. This crate finds a frame's end (its
//! user provides the function that measures a header) and moves each part without copying the
//! payload: a payload is sent from its memory, in one system call with header and message, and is
//! received into memory of exactly its size. The meaning of the parts belongs to `dafs`.
//!
//! [`Connection`] is the socket, [`Outbox`] the bytes to send through it, [`Inbox`] the received
//! bytes. On one host [`lane`] and [`region`] move frames and payloads through shared memory.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod connection;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod inbox;
pub mod lane;
mod listener;
mod outbox;
pub mod region;
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
