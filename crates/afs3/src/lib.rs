//! AFS-3 as bytes: the calls and answers of all its services, its directories, its access lists,
//! its error codes and its volume dumps.
//!
//! Model: nothing here has a socket, a clock or a rule of our own services. A transport (Rx) brings
//! the bytes of a call; [`RpcMessage::decode`] makes a value of them, a front end acts on it, and
//! [`RpcMessage::encode`] makes the bytes of the answer. Each service is a module with one enum of
//! calls, one of answers and a table of procedures, all from one row a procedure.
//! `docs/spec/afs3.md` says the same in words.
//!
//! All bytes from outside are untrusted: decoding never panics, and allocates no more than the
//! input has.

// Libraries report through their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bos;
pub mod callbacks;
pub mod cellserv;
pub mod directory;
pub mod dump;
pub mod errors;
pub mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod locations;
pub mod protection;
pub mod rights;
mod rpc;
#[cfg(test)]
mod sample;
pub mod statistics;
pub mod structs;
#[cfg(test)]
mod tests;
pub mod ubik;
pub mod volumes;
pub mod xdr;

pub use rpc::{ProcedureRow, RpcError, RpcMessage, StreamPlace};
