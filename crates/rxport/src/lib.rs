//! An Rx endpoint on a UDP port, with calls that block their threads.
//!
//! Model: [`RxPort`] has the socket, the endpoint under one lock, and a thread that receives and
//! keeps the times. Each step on the endpoint, whichever thread makes it, ends the same way: the
//! datagrams that the step owes are sent, calls that wait are woken, and calls that came are handed
//! to the port's `serve`. So a thread that writes into a call sends its packets itself.
//!
//! `serve` runs in the thread that found the call, often the receiving one: it passes the call on,
//! and does no work itself.
//!
//! Layers, from top to bottom:
//!
//! - `port`: the handle
//! - `call`: the streams of a call
//! - `core`: what all handles and calls share
//! - `datagrams`: the socket
//!
//! A datagram that the socket has no room for is dropped, as on a busy line: Rx sends it again.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod call;
mod core;
mod datagrams;
mod port;

pub use call::{CallEnder, PortCall};
pub use port::{RxPort, ServedCall};
