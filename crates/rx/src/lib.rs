//! Rx, the transport under every AFS-3 service, and its security class rxkad.
//!
//! [`RxEndpoint`] is one UDP port with both roles: it calls, and is called. It does no I/O, reads
//! no clock and starts no thread: datagrams and times are arguments, and what is to be sent or told
//! is taken from it. The same inputs give the same outputs. `docs/spec/rx.md` says which rules it
//! keeps; assertions and tests use their numbers.
//!
//! The model. A *connection* joins two endpoints for one service with one security class. It has
//! four *channels*; each carries one *call* at a time. A call is two streams of bytes, the request
//! and the answer, cut into numbered packets. The receiver acknowledges packets twice: softly when
//! it holds them, hard when its reader took them.
//!
//! Layers, from top to bottom:
//!
//! - `fuzzing`: the check of the fuzz target
//! - `endpoint`: the tables of connections and peers, what is sent next
//! - `connection`: channels, authentication, errors
//! - `call`: the two halves of a call, windows, resends, timers
//! - `security`: the classes
//! - `debug`: the answers that `rxdebug` reads
//! - `rxkad`: who calls, and how packets are protected
//! - `common`, `event`, `config`, `statistics`, `error`, `ids`, `level`, `limits`: vocabulary
//! - `wire`: bytes of packets
//!
//! Sources: OpenAFS `src/rx` and `doc/txt/rx-spec.txt`, Linux `net/rxrpc`.

// Libraries report through `tracing` and their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod call;
mod common;
mod config;
mod connection;
pub mod debug;
mod endpoint;
mod error;
mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod ids;
mod level;
pub mod limits;
pub mod rxkad;
mod security;
mod statistics;
pub mod wire;

pub use config::{CallLimits, EndpointConfig};
pub use endpoint::RxEndpoint;
pub use error::{RxError, code};
pub use event::{RxCaller, RxEvent, RxRead, Transmit};
pub use ids::{RxCallId, RxConnectionId, ServiceId};
pub use security::{ClientSecurity, ServerSecurity};
pub use statistics::RxStatistics;
