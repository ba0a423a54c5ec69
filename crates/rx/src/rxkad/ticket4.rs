//! Tickets in the form of Kerberos 4, sealed with a DES key.
//!
//! Source: OpenAFS `src/rxkad/ticket.c`, `lifetimes.h`.

use zeroize::Zeroizing;

use super::code;
use super::des::DesKey;
use super::keys::RxkadKeys;
use super::open_ticket::{NEVER, OpenTicket};

const NAME_CHARS_MAX: usize = 63;
const LITTLE_ENDIAN: u8 = 1;
const LIFE_UNIT_SECS: u32 = 5 * 60;
/// Lifetimes from this on are in the table.
const LIFE_TABLE: u8 = 0x80;
const LIFE_NEVER: u8 = 0xff;

/// Lifetimes that grow by the same ratio from 38400 s to 30 days.
const LIFETIMES: [u32; 64] = [
    38400, 41055, 43894, 46929, 50174, 53643, 57352, 61318, 65558, 70091, 74937, 80119, 85658,
    91581, 97914, 104684, 111922, 119661, 127935, 136781, 146239, 156350, 167161, 178720, 191077,
    204289, 218415, 233517, 249664, 266926, 285383, 305116, 326213, 348769, 372885, 398668, 426234,
    455705, 487215, 520904, 556921, 595430, 636601, 680618, 727680, 777995, 831789, 889303, 950794,
    1016537, 1086825, 1161973, 1242318, 1328218, 1420057, 1518247, 1623226, 1735464, 1855462,
    1983758, 2120925, 2267576, 2424367, 2592000,
];

fn end_of(start: u32, life: u8) -> u32 {
    let secs = match life {
        LIFE_NEVER => return NEVER,
        0..LIFE_TABLE => u32::from(life) * LIFE_UNIT_SECS,
        _ => LIFETIMES[usize::from(life - LIFE_TABLE).min(LIFETIMES.len() - 1)],
    };
    start.saturating_add(secs)
}

/// Opens a ticket with the DES key of this number.
pub(super) fn open(kvno: u32, ticket: &[u8], keys: &RxkadKeys) -> Result<OpenTicket, i32> {
    if !ticket.len().is_multiple_of(8) {
        return Err(code::TICKET_LENGTH);
    }
    let key = keys.des(kvno).ok_or(code::UNKNOWN_KEY)?;
    let mut plain = Zeroizing::new(ticket.to_vec());
    DesKey::new(key).decrypt_pcbc(u64::from_be_bytes(key), &mut plain);
    parse(&plain).ok_or(code::BAD_TICKET)
}

fn parse(plain: &[u8]) -> Option<OpenTicket> {
    let (flags, rest) = plain.split_first()?;
    let (name, rest) = text(rest)?;
    let (instance, rest) = text(rest)?;
    let (cell, rest) = text(rest)?;
    let (_host, rest) = rest.split_first_chunk::<4>()?;
    let (session_key, rest) = rest.split_first_chunk::<8>()?;
    let (life, rest) = rest.split_first()?;
    let (start, rest) = rest.split_first_chunk::<4>()?;
    let (_server, rest) = text(rest)?;
    let (_server_instance, rest) = text(rest)?;
    if rest.len() >= 8 {
        return None;
    }
    let start = match flags & LITTLE_ENDIAN {
        0 => u32::from_be_bytes(*start),
        _ => u32::from_le_bytes(*start),
    };
    let session_key = Zeroizing::new(*session_key);
    Some(OpenTicket { name, instance, cell, session_key, start, end: end_of(start, *life) })
}

/// The text before the first zero byte, and what follows that.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = bytes.iter().take(NAME_CHARS_MAX + 1).position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let is_printable = !text.chars().any(char::is_control);
    is_printable.then(|| (text.to_owned(), &bytes[end + 1..]))
}

/// Seals a ticket of a server itself: no host, no start, no end.
pub(super) fn seal_local(name: &str, session_key: [u8; 8], key: [u8; 8]) -> Vec<u8> {
    let mut plain = vec![0];
    plain.extend_from_slice(name.as_bytes());
    plain.extend_from_slice(&[0; 3]); // The ends of name, instance and cell.
    plain.extend_from_slice(&[0; 4]);
    plain.extend_from_slice(&session_key);
    plain.push(LIFE_NEVER);
    plain.extend_from_slice(&[0; 4]);
    plain.extend_from_slice(name.as_bytes());
    plain.extend_from_slice(&[0; 2]);
    plain.resize(plain.len().next_multiple_of(8), 0);
    DesKey::new(key).encrypt_pcbc(u64::from_be_bytes(key), &mut plain);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 8] = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];

    fn sealed(plain: &[u8]) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        DesKey::new(KEY).encrypt_pcbc(u64::from_be_bytes(KEY), &mut bytes);
        bytes
    }

    fn keys() -> RxkadKeys {
        let mut keys = RxkadKeys::new();
        keys.add_des(3, KEY);
        keys
    }

    #[test]
    fn a_ticket_says_who_and_until_when() {
        let plain = b"\0joe\0admin\0example.com\0\x0a\0\0\x01abcdefgh\x81\x40\0\0\0afs\0\0";
        let ticket = open(3, &sealed(plain), &keys()).unwrap();
        assert_eq!((&*ticket.name, &*ticket.instance), ("joe", "admin"));
        assert_eq!(ticket.cell, "example.com");
        assert_eq!(*ticket.session_key, *b"abcdefgh");
        assert_eq!((ticket.start, ticket.end), (0x4000_0000, 0x4000_0000 + 41055));
        let little = b"\x01joe\0\0x\0\0\0\0\0abcdefgh\x02\0\0\0\x40afs\0\0\0\0";
        let ticket = open(3, &sealed(little), &keys()).unwrap();
        assert_eq!((ticket.start, ticket.end), (0x4000_0000, 0x4000_0000 + 600));
    }

    #[test]
    fn what_is_no_ticket_is_refused() {
        let good = sealed(b"\0joe\0\0cell\0\0\0\0\0abcdefgh\x81\x40\0\0\0afs\0\0");
        assert!(open(3, &good, &keys()).is_ok());
        assert_eq!(open(4, &good, &keys()), Err(code::UNKNOWN_KEY));
        assert_eq!(open(3, &good[1..], &keys()), Err(code::TICKET_LENGTH));
        assert_eq!(open(3, &good[..24], &keys()), Err(code::BAD_TICKET));
        assert_eq!(open(3, &sealed(&[b'a'; 80]), &keys()), Err(code::BAD_TICKET));
        let control = sealed(b"\0j\noe\0\0cell\0\0\0\0\0abcdefgh\x81\x40\0\0\0afs\0\0");
        assert_eq!(open(3, &control, &keys()), Err(code::BAD_TICKET));
    }
}
