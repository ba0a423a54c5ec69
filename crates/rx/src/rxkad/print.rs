//! A token that a server makes for itself with the cell's key, for calls to other servers.
//!
//! Servers take its name, "afs" in no cell, for the server itself.
//!
//! Source: OpenAFS `src/auth/authcon.c` (`GenericAuth`), `src/rxkad/ticket5.c`.

use bytes::Bytes;
use rand::Rng;
use zeroize::Zeroizing;

use super::des::{is_weak, with_parity};
use super::kerberos::{AES128, AES256};
use super::keys::{RxkadKeys, RxkadToken};
use super::open_ticket::NEVER;
use super::ticket::KVNO_KRB5_PART;
use super::{ticket4, ticket5};

/// The name of servers.
pub(super) const LOCAL_NAME: &str = "afs";
const KRB5_END: u32 = 0x7fff_ffff;

/// A token of the server itself, in no cell, without an end; `None` without a key that can make
/// one. The strongest Kerberos 5 key is taken, or else the newest DES key.
pub fn print_token(keys: &RxkadKeys, random: &mut impl Rng) -> Option<RxkadToken> {
    let session_key = loop {
        let key = with_parity(random.random());
        if !is_weak(key) {
            break key;
        }
    };
    for kind in [AES256, AES128] {
        let Some((kvno, key)) = keys.newest_krb5(kind) else { continue };
        let ticket = ticket5::NewTicket {
            name: LOCAL_NAME,
            realm: "",
            session_key,
            start: 0,
            end: KRB5_END,
        };
        let ticket = ticket5::seal_part(&ticket, (kvno, kind, key), random.random())?;
        return Some(token(session_key, KVNO_KRB5_PART, ticket, KRB5_END));
    }
    let (kvno, key) = keys.newest_des()?;
    let ticket = ticket4::seal_local(LOCAL_NAME, session_key, key);
    Some(token(session_key, kvno, ticket, NEVER))
}

fn token(session_key: [u8; 8], kvno: u32, ticket: Vec<u8>, end: u32) -> RxkadToken {
    let ticket = Bytes::from(ticket);
    RxkadToken { session_key: Zeroizing::new(session_key), kvno, ticket, valid: (0, end) }
}
