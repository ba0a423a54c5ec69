//! The C interface of `rialto-client`. `include/rialto.h` is its specification.
//!
//! Model:
//!
//! - A handle in C is a pointer that is never followed: it is a number, and a table has the object
//!   of each number that is in use. Numbers are never given again, so a handle that was closed
//!   twice, or is used after it was closed, is an error and nothing worse.
//! - An object is shared by the table and by the calls that use it now. It goes when the last of
//!   them is through.
//! - A buffer is either with the program or with one operation. It comes back with the operation's
//!   completion, which names the same handle.
//! - Each function answers with a number, negative for an error, whose text stays with the thread.
//!   No panic leaves a function.
//! - A process that forked has none of the library's threads: each function refuses there.
//!
//! This crate and `mem` are the only ones with unsafe code. Here it is that which a C interface
//! needs: texts, numbers and bytes behind the caller's pointers (`pointers`), and the names of
//! functions. Each function has one SAFETY comment, which names the caller's promises on which it
//! rests; the header demands them.
//!
//! Layers, from top to bottom:
//!
//! - `names`, `sharing`, `operations`, `groups`, `memory`, `connection`: the functions
//! - `staging`: reads and writes of memory that servers cannot access
//! - `completions`: operations that are begun, and those that are complete
//! - `handle`: numbers and their objects
//! - `records`: structs of the header
//! - `pointers`: the caller's memory
//! - `error`: numbers and texts of errors

// Its promises are in the header, and each function names those on which it rests.
#![allow(clippy::missing_safety_doc)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod completions;
mod connection;
mod error;
mod groups;
mod handle;
mod memory;
mod names;
mod operations;
mod pointers;
mod records;
mod sharing;
mod staging;

#[cfg(test)]
mod tests;
