//! The native protocol, after the ideas of DAFS: the byte layout of calls and answers, and the two
//! state machines of a session between a client and a server. `docs/spec/protocol.md` has every
//! layout.
//!
//! No code in this crate does I/O, reads a clock or starts a thread. A driver cuts a stream into
//! [`Frame`]s and passes them to a machine:
//!
//! - [`Greeting`] (server, one per connection): the hello, then the attach or bind that names the
//!   connection's session;
//! - [`ServerSession`] (one per session): slots, request numbers, chains, credentials, breaks,
//!   renewals;
//! - [`ClientSession`] (one per server that the client uses): credits, resending after a reconnect,
//!   keep-alive.
//!
//! Each `step` takes one input and appends its outputs. An error from `step` is the peer's fault:
//! the driver closes the connection that the input came from (the machine has removed it already),
//! and the session lives on.
//!
//! Layers, from top to bottom:
//!
//! - `client`, `server`, `greeting`, `fuzzing`, `fuzzing_session`, `strategies`: the machines, and
//!   inputs for their tests
//! - `message`: requests, replies and breaks as messages
//! - `codec`: the layout of calls and answers
//! - `error`, `frame`, `hello`, `wire`: frames, greetings, and the encoding of values
//! - `credentials`, `limits`, `packed`: values

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod client;
pub mod codec;
pub mod credentials;
mod error;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing_session;
#[cfg(test)]
mod golden;
mod greeting;
mod hello;
pub mod limits;
pub mod message;
pub mod packed;
pub mod server;
#[cfg(any(test, feature = "proptest"))]
pub mod strategies;
mod wire;

pub use client::{
    CallFailure, CallId, ClientConfig, ClientInput, ClientOutput, ClientSession, ConnectionRole,
    KeptSession, KeptState,
};
pub use codec::{
    EncodedAnswer, EncodedCall, Procedure, STATUS_BYTES, decode_answer, decode_answer_record,
    decode_call, encode_answer, encode_answer_record, encode_call,
};
pub use error::PeerError;
pub use frame::{FaultCode, Flags, Frame, FrameHeader, FrameKind, Region};
pub use greeting::{Greeting, GreetingInput, GreetingOutput};
pub use hello::{Features, Hello, HelloAnswer, HelloRefusal, Terms};
pub use server::{ServerInput, ServerOutput, ServerSession, SessionSetup};
pub use wire::WireError;

/// One connection, by its driver's number. The driver never uses a number again for another
/// connection of the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u64);
