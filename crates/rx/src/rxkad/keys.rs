//! The cell's long-term keys, and a client's token.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use zeroize::Zeroizing;

/// Kerberos's encryption types of DES: with CRC, MD4 and MD5.
const DES_KINDS: [i32; 3] = [1, 2, 3];

/// Keys of a cell, which servers of the cell share.
#[derive(Clone, Default)]
pub struct RxkadKeys {
    /// By number.
    des: BTreeMap<u32, Zeroizing<[u8; 8]>>,
    /// By number and Kerberos encryption type.
    krb5: BTreeMap<(u32, i32), Zeroizing<Vec<u8>>>,
}

impl RxkadKeys {
    /// No keys.
    pub fn new() -> Self {
        RxkadKeys::default()
    }

    /// Adds a DES key.
    pub fn add_des(&mut self, kvno: u32, key: [u8; 8]) {
        self.des.insert(kvno, Zeroizing::new(key));
    }

    /// Adds a Kerberos 5 key of this encryption type.
    pub fn add_krb5(&mut self, kvno: u32, kind: i32, key: &[u8]) {
        self.krb5.insert((kvno, kind), Zeroizing::new(key.to_vec()));
    }

    /// Adds all keys of `other`.
    pub fn add_all(&mut self, other: RxkadKeys) {
        self.des.extend(other.des);
        self.krb5.extend(other.krb5);
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.des.is_empty() && self.krb5.is_empty()
    }

    /// Whether one of them is of DES, which can be found by trying all.
    pub fn has_des(&self) -> bool {
        !self.des.is_empty() || self.krb5.keys().any(|(_, kind)| DES_KINDS.contains(kind))
    }

    pub(super) fn des(&self, kvno: u32) -> Option<[u8; 8]> {
        self.des.get(&kvno).map(|key| **key)
    }

    pub(super) fn krb5(&self, kvno: u32, kind: i32) -> Option<&[u8]> {
        self.krb5.get(&(kvno, kind)).map(|key| key.as_slice())
    }

    /// The newest DES key, with its number.
    pub(super) fn newest_des(&self) -> Option<(u32, [u8; 8])> {
        self.des.last_key_value().map(|(kvno, key)| (*kvno, **key))
    }

    /// The newest key of an encryption type, with its number.
    pub(super) fn newest_krb5(&self, kind: i32) -> Option<(u32, &[u8])> {
        let mut keys = self.krb5.iter().rev().filter(|((_, of), _)| *of == kind);
        keys.next().map(|((kvno, _), key)| (*kvno, key.as_slice()))
    }
}

impl fmt::Debug for RxkadKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let des: Vec<_> = self.des.keys().collect();
        let krb5: Vec<_> = self.krb5.keys().collect();
        f.debug_struct("RxkadKeys").field("des", &des).field("krb5", &krb5).finish()
    }
}

/// A client's proof for the servers of a cell.
#[derive(Clone)]
pub struct RxkadToken {
    /// The key that only the client, and whoever can open the ticket, know.
    pub session_key: Zeroizing<[u8; 8]>,
    /// The number of the key that the ticket is sealed with, or the kind of ticket: 256 for a
    /// Kerberos 5 ticket, 213 for only its encrypted part.
    pub kvno: u32,
    /// Sealed with the cell's key.
    pub ticket: Bytes,
    /// Begin and end, in seconds since 1970.
    pub valid: (u32, u32),
}

impl fmt::Debug for RxkadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RxkadToken")
            .field("kvno", &self.kvno)
            .field("ticket_bytes", &self.ticket.len())
            .field("valid", &self.valid)
            .finish()
    }
}
