//! A server's secrets and certificates: the keys of its cell on disk.
//!
//! ```text
//! keys/          mode 0700, every file in it 0600
//!   ca.pem       the cell's certificate authority, by which clients know the cell, and behind it
//!                those that it succeeds
//!   ca.key       its key, at one server or on none: its holder can make servers of this cell
//!   ca.next      both of a successor, while they replace the old ones
//!   server.key   this server's own key
//!   server.pem   its certificate
//!   server.names the names that the certificate was made for
//!   server.next  the key that replaces it when the cell database lists it
//!   server.next.pem   the certificate for that key, at a server without ca.key
//!   server.request    what an administrator takes to the key of the authority (`sign_order.rs`)
//!   tokens/      keys that sign tokens (`tokens.rs`), the same at every server of the cell
//!   at-rest/     keys that wrap those of encrypted volumes (`at_rest.rs`); each server has its own
//! ```
//! The first server of a cell makes the authority (`authority.rs`). A server that joins makes its
//! own key (`cell_keys.rs`), and another server signs a certificate for it (`certifier.rs`). Each
//! gets a new certificate before that ends or when its names change. Files are replaced as a whole.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod at_rest;
mod authority;
mod cell_keys;
mod certificates;
mod certifier;
mod files;
mod given_files;
mod key_command;
mod numbered;
mod sealed_file;
mod sign_order;
mod tokens;

pub use at_rest::{AtRest, at_rest_dir};
pub use authority::CellAuthority;
pub use cell_keys::{CellKeys, OwnCertificate};
pub use certificates::{JOINED_LIFE, RENEW_BEFORE, succeeds};
pub use certifier::CellCertifier;
pub use given_files::{authorities_in, identity_in};
pub use sealed_file::{SEALED_MAGIC, SealedReader, SealedWriter};
pub use sign_order::{SignOrder, SignedOrder};
pub use tokens::TokenKeys;

/// Why keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct KeyError {
    /// The file or directory.
    pub path: String,
    /// The error, without any of the file's content.
    pub why: String,
}
