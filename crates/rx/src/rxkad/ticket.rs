//! Opens tickets of every kind.

use super::code;
use super::keys::RxkadKeys;
use super::open_ticket::OpenTicket;
use super::{ticket4, ticket5};

/// A whole Kerberos 5 ticket, in place of a key's number.
pub(super) const KVNO_KRB5: u32 = 256;
/// Only the encrypted part of a Kerberos 5 ticket.
pub(super) const KVNO_KRB5_PART: u32 = 213;
/// The largest number of a key that seals version 4 tickets.
const KVNO_KRB4_MAX: u32 = 255;
/// Sizes of tickets. Source: OpenAFS `src/rxkad/private_data.h`.
const TICKET_BYTES: std::ops::RangeInclusive<usize> = 32..=12000;

/// Opens a ticket with the cell's keys; an error is the code for the peer.
pub(super) fn open(kvno: u32, ticket: &[u8], keys: &RxkadKeys) -> Result<OpenTicket, i32> {
    if !TICKET_BYTES.contains(&ticket.len()) {
        return Err(code::TICKET_LENGTH);
    }
    match kvno {
        KVNO_KRB5 => ticket5::open_ticket(ticket, keys),
        KVNO_KRB5_PART => ticket5::open_part(ticket, keys),
        0..=KVNO_KRB4_MAX => ticket4::open(kvno, ticket, keys),
        _ => Err(code::UNKNOWN_KEY),
    }
}
