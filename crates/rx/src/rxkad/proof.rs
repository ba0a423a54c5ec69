//! Challenge and response: how a client proves that it can use its ticket.
//!
//! The server sends a random number. The client sends the ticket, and the number plus one with the
//! connection's name and the numbers of its calls, encrypted with the session key. Only the client
//! and the server that opens the ticket know that key. Only version 2 of the two packets is spoken:
//! the older one lacks the connection's name, and no client of the last decades needs it.
//!
//! Source: OpenAFS `src/rxkad/rxkad_server.c`, `rxkad_client.c`.

use std::sync::Arc;

use rand::Rng;

use super::fcrypt::{Fcrypt, block};
use super::keys::{RxkadKeys, RxkadToken};
use super::open_ticket::OpenTicket;
use super::packet::PacketSeal;
use super::print::LOCAL_NAME;
use super::{INDEX, code, ticket};
use crate::event::RxCaller;
use crate::level::RxkadLevel;

const VERSION: u32 = 2;
const CHALLENGE_BYTES: usize = 16;
/// A response without its ticket.
const RESPONSE_BYTES: usize = 56;
const SEALED: std::ops::Range<usize> = 8..48;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Covers the fixed part of a response, whose own field is zero.
fn checksum(response: &[u8]) -> u32 {
    let step = |h: u32, byte: &u8| h.wrapping_mul(0x1020_4081).wrapping_add(u32::from(*byte));
    response.iter().fold(1_000_003, step)
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct RxkadClient {
    token: RxkadToken,
    seal: PacketSeal,
    epoch: u32,
    cid: u32,
}

impl RxkadClient {
    pub(crate) fn new(token: RxkadToken, level: RxkadLevel, epoch: u32, cid: u32) -> Self {
        let seal = PacketSeal::new(*token.session_key, level, epoch, cid, INDEX);
        RxkadClient { token, seal, epoch, cid: cid & !3 }
    }

    pub(crate) fn seal(&self) -> &PacketSeal {
        &self.seal
    }

    /// The response to a challenge; `numbers` are those of the latest call of each channel. An
    /// error is the code for the peer.
    pub(crate) fn respond(&self, challenge: &[u8], numbers: [u32; 4]) -> Result<Vec<u8>, i32> {
        if word(challenge, 0) != Some(VERSION) || challenge.len() < CHALLENGE_BYTES {
            return Err(code::PACKET_SHORT);
        }
        let (Some(id), Some(level_min)) = (word(challenge, 4), word(challenge, 8)) else {
            return Err(code::PACKET_SHORT);
        };
        let level = self.seal.level();
        if level_min > level as u32 {
            return Err(code::LEVEL_FAIL);
        }
        let [a, b, c, d] = numbers;
        let ticket = &self.token.ticket;
        let words = [
            VERSION,
            0,
            self.epoch,
            self.cid,
            0,
            u32::from(INDEX),
            a,
            b,
            c,
            d,
            id.wrapping_add(1),
            level as u32,
            self.token.kvno,
            ticket.len() as u32,
        ];
        let mut response: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let checksum = checksum(&response);
        response[16..20].copy_from_slice(&checksum.to_be_bytes());
        let key = *self.token.session_key;
        Fcrypt::new(key).encrypt_pcbc(block(key), &mut response[SEALED]);
        response.extend_from_slice(ticket);
        Ok(response)
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct RxkadServer {
    keys: Arc<RxkadKeys>,
    level_min: RxkadLevel,
    index: u8,
    epoch: u32,
    cid: u32,
    challenge: Option<u32>,
    session: Option<ServerSession>,
}

#[derive(Debug)]
struct ServerSession {
    seal: PacketSeal,
    caller: RxCaller,
    /// `None`: never.
    expires: Option<u32>,
}

/// The content of a response, with the sealed part open.
struct OpenResponse {
    ticket: OpenTicket,
    level: RxkadLevel,
    numbers: [u32; 4],
}

impl RxkadServer {
    pub(crate) fn new(
        keys: Arc<RxkadKeys>,
        level_min: RxkadLevel,
        index: u8,
        epoch: u32,
        cid: u32,
    ) -> Self {
        let cid = cid & !3;
        RxkadServer { keys, level_min, index, epoch, cid, challenge: None, session: None }
    }

    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// The session, once the caller is proved.
    pub(crate) fn seal(&self) -> Option<&PacketSeal> {
        self.session.as_ref().map(|session| &session.seal)
    }

    pub(crate) fn caller(&self) -> &RxCaller {
        self.session.as_ref().map_or(&RxCaller::Anybody, |session| &session.caller)
    }

    pub(crate) fn is_expired(&self, now: i64) -> bool {
        let expires = self.session.as_ref().and_then(|session| session.expires);
        expires.is_some_and(|expires| i64::from(expires) < now)
    }

    /// The challenge; it stays the same when it is sent again.
    pub(crate) fn challenge(&mut self, random: &mut impl Rng) -> [u8; CHALLENGE_BYTES] {
        let id = *self.challenge.get_or_insert_with(|| random.random());
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_be_bytes());
        bytes[4..8].copy_from_slice(&id.to_be_bytes());
        bytes[8..12].copy_from_slice(&(self.level_min as u32).to_be_bytes());
        bytes
    }

    /// Checks a response, and starts the session. Returns the numbers of the client's latest calls;
    /// an error is the code for the peer.
    pub(crate) fn accept(&mut self, response: &[u8], now: i64) -> Result<[u32; 4], i32> {
        let OpenResponse { ticket, level, numbers } = self.open(response, now)?;
        let key = *ticket.session_key;
        let expires = (!ticket.is_endless()).then_some(ticket.end);
        let is_local_auth =
            ticket.name == LOCAL_NAME && ticket.instance.is_empty() && ticket.cell.is_empty();
        self.session = Some(ServerSession {
            seal: PacketSeal::new(key, level, self.epoch, self.cid, self.index),
            caller: RxCaller::Krb {
                name: ticket.name,
                instance: ticket.instance,
                cell: ticket.cell,
                level,
                issued: ticket.start,
                expires: ticket.end,
                is_local_auth,
            },
            expires,
        });
        Ok(numbers)
    }

    fn open(&self, response: &[u8], now: i64) -> Result<OpenResponse, i32> {
        let (fixed, rest) =
            response.split_first_chunk::<RESPONSE_BYTES>().ok_or(code::PACKET_SHORT)?;
        let mut fixed = *fixed;
        let field = |bytes: &[u8], at| word(bytes, at).ok_or(code::PACKET_SHORT);
        if field(&fixed, 0)? != VERSION {
            return Err(code::PACKET_SHORT);
        }
        let sealed = rest.get(..field(&fixed, 52)? as usize).ok_or(code::TICKET_LENGTH)?;
        let ticket = ticket::open(field(&fixed, 48)?, sealed, &self.keys)?;
        ticket.check_times(now)?;
        let key = *ticket.session_key;
        Fcrypt::new(key).decrypt_pcbc(block(key), &mut fixed[SEALED]);
        let claimed = field(&fixed, 16)?;
        fixed[16..20].fill(0);
        let place = [field(&fixed, 8)?, field(&fixed, 12)?, field(&fixed, 20)?];
        if claimed != checksum(&fixed) || place != [self.epoch, self.cid, u32::from(self.index)] {
            return Err(code::SEALED_INCONSISTENTLY);
        }
        let mut numbers = [0; 4];
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = field(&fixed, 24 + 4 * at)?;
        }
        if numbers.iter().any(|number| *number > i32::MAX as u32) {
            return Err(code::SEALED_INCONSISTENTLY);
        }
        let expected = self.challenge.map(|id| id.wrapping_add(1));
        if Some(field(&fixed, 40)?) != expected {
            return Err(code::OUT_OF_SEQUENCE);
        }
        let level = RxkadLevel::from_number(field(&fixed, 44)?);
        let level = level.filter(|level| *level >= self.level_min).ok_or(code::LEVEL_FAIL)?;
        Ok(OpenResponse { ticket, level, numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::hex;
    use zeroize::Zeroizing;

    #[test]
    fn the_worked_example_has_its_response() {
        let token = RxkadToken {
            session_key: Zeroizing::new(0x0123_4567_89ab_cdef_u64.to_be_bytes()),
            kvno: 3,
            ticket: Bytes::from(vec![9; 56]),
            valid: (0, 0),
        };
        let client = RxkadClient::new(token, RxkadLevel::Crypt, 0x8000_1234, 0x00ab_cd00);
        let mut challenge = [0; 16];
        challenge[3] = 2;
        challenge[4..8].copy_from_slice(&0x1122_3344_u32.to_be_bytes());
        let response = client.respond(&challenge, [0; 4]).unwrap();
        assert_eq!(response.len(), 56 + 56);
        assert_eq!(
            hex(&response[SEALED]),
            "d787181501e7b0756b9ccb9f475798ceb4707a2ef008898890c63969ad652f6c\
             48793897c02fbe65"
        );
        assert_eq!(hex(&response[48..56]), "0000000300000038");
        challenge[11] = 3;
        assert_eq!(client.respond(&challenge, [0; 4]), Err(code::LEVEL_FAIL));
        assert_eq!(client.respond(&challenge[..8], [0; 4]), Err(code::PACKET_SHORT));
    }
}
