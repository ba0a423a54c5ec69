//! rxkad: the security class that AFS-3 cells use. The client proves a Kerberos name with a ticket
//! that is sealed with the cell's key; packets have a checksum and, by level, are sealed.
//!
//! Layers, from top to bottom:
//!
//! - `proof`: challenge and response, the state of both ends
//! - `packet`: checksum and seal of data packets
//! - `ticket`, `ticket4`, `ticket5`, `open_ticket`: what a ticket says
//! - `print`: a ticket from the cell's key
//! - `keys`, `keyfile`: the cell's keys, and the files that have them
//! - `kerberos`, `derive`: encryption types of Kerberos 5, and the session key from theirs
//! - `fcrypt`, `des`: ciphers
//!
//! Source: OpenAFS `src/rxkad`, Linux `net/rxrpc/rxkad.c`, RFC 3961, 3962, 4120.

mod asn1;
mod derive;
mod des;
mod fcrypt;
mod kerberos;
mod keyfile;
mod keys;
mod open_ticket;
mod packet;
mod print;
mod proof;
mod sboxes;
mod ticket;
mod ticket4;
mod ticket5;

pub use crate::level::RxkadLevel;
pub use derive::session_key_from_krb5;
pub use fcrypt::{Fcrypt, FcryptBlock};
pub use keyfile::{KeyFileError, read_key_file, read_key_file_ext, read_keytab};
pub use keys::{RxkadKeys, RxkadToken};
pub use print::print_token;

pub(crate) use packet::{BadSeal, PacketSeal};
pub(crate) use proof::{RxkadClient, RxkadServer};

/// The usual number of the class on the wire.
pub const INDEX: u8 = 2;

/// Codes with which rxkad ends a connection. Source: OpenAFS `src/rxkad/rxkad_errs.et`.
pub mod code {
    /// A state that should not be.
    pub const INCONSISTENCY: i32 = 19_270_400;
    /// A challenge or response is too short.
    pub const PACKET_SHORT: i32 = 19_270_401;
    /// The levels of the two sides do not go together.
    pub const LEVEL_FAIL: i32 = 19_270_402;
    /// The ticket is too short or too long.
    pub const TICKET_LENGTH: i32 = 19_270_403;
    /// The response is for another challenge.
    pub const OUT_OF_SEQUENCE: i32 = 19_270_404;
    /// The ticket does not prove anything now.
    pub const NO_AUTH: i32 = 19_270_405;
    /// The ticket's key cannot be used.
    pub const BAD_KEY: i32 = 19_270_406;
    /// The ticket makes no sense.
    pub const BAD_TICKET: i32 = 19_270_407;
    /// The server does not have the key that the ticket is sealed with.
    pub const UNKNOWN_KEY: i32 = 19_270_408;
    /// The ticket has expired.
    pub const EXPIRED: i32 = 19_270_409;
    /// A checksum or seal is wrong.
    pub const SEALED_INCONSISTENTLY: i32 = 19_270_410;
    /// A packet's length is wrong.
    pub const DATA_LENGTH: i32 = 19_270_411;
    /// There is no such level.
    pub const ILLEGAL_LEVEL: i32 = 19_270_412;
}
