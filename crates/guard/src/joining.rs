//! How a server joins its cell by an invitation: the code that a person carries, the request that
//! the new server sends, and the facts that it gets.
//!
//! The code has the fingerprint of the cell's authority, so that the new server knows with whom it
//! speaks, and a secret. A key is derived from both. The new server signs its request with it, and
//! never sends the secret. The request names the new server's own key, so a copy of it gives
//! nothing: the certificate that it brings is of use only to the holder of that key. The database
//! has the public half of the derived key.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use types::{KeyPrint, ServerRoles, fmt_sha256, hex, parse_sha256, unhex_array};
use zeroize::Zeroizing;

use crate::token::{Public, Signature, Signer, is_signed};

/// Bytes of the secret of a code: more than anyone can guess.
const SECRET_BYTES: usize = 16;
/// Bytes of the sum that finds typing faults in a code.
const SUM_BYTES: usize = 4;
const FINGERPRINT_BYTES: usize = 32;
/// Digits of five bits. Small letters and digits that are not easily confused.
const DIGITS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const SEED: &[u8] = b"rialto invitation 1";
const REQUEST: &[u8] = b"rialto join 1";

/// Lets its holder into the cell as a server: one line of text that a person carries.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode {
    /// The cell's name.
    pub cell: String,
    /// Where its servers are reached that may let the holder in.
    pub addresses: Vec<String>,
    /// The fingerprint of the cell's authority.
    pub authority: [u8; FINGERPRINT_BYTES],
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

// Omits the secret.
impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinCode").field("cell", &self.cell).finish_non_exhaustive()
    }
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    digest(&SHA256, &parts.concat()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl JoinCode {
    /// A new one, with a random secret.
    pub fn random(cell: &str, addresses: Vec<String>, authority: [u8; 32]) -> JoinCode {
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        aws_lc_rs::rand::fill(&mut secret[..]).expect("the system has random numbers");
        JoinCode { cell: cell.to_owned(), addresses, authority, secret }
    }

    /// The key with which the holder signs.
    pub fn signer(&self) -> Signer {
        Signer::new(&Zeroizing::new(sha256(&[SEED, &self.authority, &self.secret[..]])))
    }

    /// The line of text.
    pub fn text(&self) -> Zeroizing<String> {
        let head = format!("{}/{}/", self.cell, self.addresses.join(","));
        let mut bytes = Zeroizing::new([&self.authority[..], &self.secret[..]].concat());
        let sum = sha256(&[head.as_bytes(), &bytes]);
        bytes.extend_from_slice(&sum[..SUM_BYTES]);
        Zeroizing::new(head + &digits_of(&bytes))
    }
}

impl FromStr for JoinCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let damaged = || {
            "the code is not as it was printed: copy the whole line, which 'rialto cell invite' \
             printed, once more"
                .to_owned()
        };
        let text = text.trim();
        let (head, digits) = text.rsplit_once('/').ok_or_else(damaged)?;
        let (cell, addresses) = head.split_once('/').ok_or_else(damaged)?;
        let bytes = Zeroizing::new(bytes_of(digits).ok_or_else(damaged)?);
        let (content, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or_else(damaged)?;
        let expected = sha256(&[format!("{head}/").as_bytes(), content]);
        let (authority, secret) =
            content.split_first_chunk::<FINGERPRINT_BYTES>().ok_or_else(damaged)?;
        let secret: [u8; SECRET_BYTES] = secret.try_into().map_err(|_| damaged())?;
        if sum[..] != expected[..SUM_BYTES] || cell.is_empty() || addresses.is_empty() {
            return Err(damaged());
        }
        let addresses = addresses.split(',').map(str::to_owned).collect();
        let secret = Zeroizing::new(secret);
        Ok(JoinCode { cell: cell.to_owned(), addresses, authority: *authority, secret })
    }
}

fn digits_of(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut count) = (String::new(), 0_u32, 0);
    let mut put = |bits: u32| text.push(char::from(DIGITS[(bits & 31) as usize]));
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            put(bits >> count);
        }
    }
    if count > 0 {
        put(bits << (5 - count));
    }
    text
}

/// `None`: another character, or bits that are left over and not zero.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits.bytes() {
        let value = DIGITS.iter().position(|known| *known == digit.to_ascii_lowercase())?;
        bits = bits << 5 | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    (count < 5 && bits & ((1 << count) - 1) == 0).then_some(bytes)
}

/// The signed part of a request. Fields that are added later have a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Body {
    cell: String,
    authority: String,
    invitation: String,
    key: String,
    name: String,
    hosts: Vec<String>,
    signing_request: String,
}

#[derive(Serialize, Deserialize)]
struct SignedBody {
    body: String,
    signature: String,
}

/// The most names and addresses that a server may want in its certificate.
pub const CERTIFIED_HOSTS_MAX: usize = 20;

/// The request of a server that wants to join. The holder of a code signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The cell's name.
    pub cell: String,
    /// The fingerprint of the cell's authority.
    pub authority: [u8; 32],
    /// The public half of the key that signs the request.
    pub invitation: Public,
    /// The new server's own key.
    pub key: KeyPrint,
    /// The new server's name; empty: the one in the invitation.
    pub name: String,
    /// The names and addresses that its certificate shall have.
    pub hosts: Vec<String>,
    /// The certificate signing request of its key (PEM).
    pub signing_request: String,
}

struct Sha256Text([u8; 32]);

impl fmt::Display for Sha256Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_sha256(&self.0, f)
    }
}

impl JoinRequest {
    /// The text that is sent. `signer`: of the code; its public half is `invitation`.
    pub fn sign(&self, signer: &Signer) -> String {
        let body = Body {
            cell: self.cell.clone(),
            authority: Sha256Text(self.authority).to_string(),
            invitation: hex(&self.invitation),
            key: self.key.to_string(),
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            signing_request: self.signing_request.clone(),
        };
        let body = serde_json::to_string(&body).expect("strings alone");
        let signature = hex(&signer.sign(&[REQUEST, body.as_bytes()].concat()));
        serde_json::to_string(&SignedBody { body, signature }).expect("strings alone")
    }

    /// Reads a request and checks its signature, by the key that it names: whether there is an
    /// invitation with that key, the database knows. `None`: it is none, or not signed so.
    pub fn read(text: &str) -> Option<JoinRequest> {
        let SignedBody { body: text, signature } = serde_json::from_str(text).ok()?;
        let body: Body = serde_json::from_str(&text).ok()?;
        let invitation: Public = unhex_array(body.invitation.as_bytes())?;
        let signature: Signature = unhex_array(signature.as_bytes())?;
        if !is_signed(&invitation, &[REQUEST, text.as_bytes()].concat(), &signature) {
            return None;
        }
        Some(JoinRequest {
            cell: body.cell,
            authority: parse_sha256(&body.authority).ok()?,
            invitation,
            key: body.key.parse().ok()?,
            name: body.name,
            hosts: body.hosts,
            signing_request: body.signing_request,
        })
    }
}

/// The knowledge that a new server gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinFacts {
    /// The cell's name.
    pub cell: String,
    /// The new server's name in it.
    pub name: String,
    /// Its roles, as text.
    pub roles: String,
    /// Its certificate (PEM); empty: the key of the authority is not at the server that answered,
    /// and an administrator has to sign elsewhere.
    pub certificate: String,
    /// The certificates of the authority, the present one first (PEM).
    pub authorities: String,
    /// The server that has the cell database, as `HOST:PORT`; `None`: the one that answered.
    pub database: Option<String>,
}

/// A server that gets a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertifiedServer {
    /// Its name in the cell.
    pub name: String,
    /// Its roles.
    pub roles: ServerRoles,
    /// Its names and addresses.
    pub hosts: Vec<String>,
}

/// The part of a server that lets others into its cell: it has the cell's certificates, and at one
/// server the key of the authority.
pub trait Certifier: fmt::Debug + Send + Sync {
    /// Whether it has the key of the authority, so that it can sign certificates.
    fn signs(&self) -> bool;

    /// The fingerprint of the present authority; `None`: there is none.
    fn authority(&self) -> Option<[u8; 32]>;

    /// Checks that the request is for this cell and its authority, and that its sender has the key.
    ///
    /// # Errors
    /// The reason, for people.
    fn check(&self, request: &JoinRequest) -> Result<(), String>;

    /// The key of a signing request, whose sender has it.
    ///
    /// # Errors
    /// The reason, for people.
    fn key_of(&self, signing_request: &str) -> Result<KeyPrint, String>;

    /// Signs a certificate (PEM) for the key of the signing request, which says nothing more.
    ///
    /// # Errors
    /// The reason, for people.
    fn certify(&self, signing_request: &str, server: &CertifiedServer) -> Result<String, String>;

    /// The facts for a new server with this name, without its certificate, and the keys that sign
    /// tokens.
    ///
    /// # Errors
    /// The reason, for people.
    fn introduce(
        &self,
        name: &str,
        roles: ServerRoles,
    ) -> Result<(JoinFacts, Zeroizing<Vec<u8>>), String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> JoinCode {
        let addresses = vec!["192.0.2.1:7620".to_owned(), "[2001:db8::1]:7620".to_owned()];
        JoinCode::random("example.org", addresses, [7; 32])
    }

    #[test]
    fn sj1_a_code_is_read_as_it_was_printed_or_not_at_all() {
        let code = code();
        let text = code.text();
        assert_eq!(text.parse::<JoinCode>().as_ref(), Ok(&code));
        assert_eq!(format!(" {}\n", &*text).parse::<JoinCode>().as_ref(), Ok(&code));
        for at in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[at] = if other[at] == b'b' { b'c' } else { b'b' };
            let other = String::from_utf8(other).unwrap();
            assert!(other.parse::<JoinCode>().is_err(), "{at}: {other}");
            assert!(text[..at].parse::<JoinCode>().is_err(), "{at}");
        }
        assert!(!format!("{code:?}").contains(&text[text.len() - 20..]));
    }

    #[test]
    fn sj1_a_request_is_valid_as_it_was_signed_alone() {
        let code = code();
        let request = JoinRequest {
            cell: code.cell.clone(),
            authority: code.authority,
            invitation: code.signer().public(),
            key: KeyPrint([3; 32]),
            name: "two".to_owned(),
            hosts: vec!["192.0.2.2".to_owned()],
            signing_request: "-----BEGIN CERTIFICATE REQUEST-----".to_owned(),
        };
        let text = request.sign(&code.signer());
        assert_eq!(JoinRequest::read(&text), Some(request.clone()));
        assert!(!text.contains(&hex(&code.secret[..])), "the secret is not sent");
        // Another key, or another name, needs the secret.
        for (old, new) in [("0303", "0404"), ("two", "six"), ("192.0.2.2", "192.0.2.3")] {
            assert!(text.contains(old));
            assert_eq!(JoinRequest::read(&text.replace(old, new)), None, "{new}");
        }
        let other = JoinCode::random("example.org", code.addresses.clone(), [7; 32]);
        assert_eq!(JoinRequest::read(&request.sign(&other.signer())), None, "another code's");
        assert_ne!(
            JoinCode { authority: [8; 32], ..code.clone() }.signer().public(),
            code.signer().public(),
            "the key belongs to one authority"
        );
    }
}
