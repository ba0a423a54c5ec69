//! A token: the cell's signed statement of a principal, bound to a key of the client, with an end.
//!
//! ```text
//! token = version u8 | level u8 | cell length u8 | name length u8 | key u32 | principal i32
//!       | number u128 | issued i64 | expires i64 | renewable until i64 | client key [32]
//!       | cell | name | signature [64]
//! ```
//! Little-endian; times in seconds since 1970. The signature (Ed25519, by the cell's signing key
//! `key`) covers all before it. One token has one form: bytes that parse as a token are those that
//! [`Token::sign`] makes.
//!
//! A token alone opens nothing: the client proves ([`prove`]) for one connection (its [`Binding`])
//! that it has the client key. So an overheard, copied or repeated token is of no use elsewhere.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use types::limits::{CELL_BYTES_MAX, PRINCIPAL_NAME_BYTES_MAX};
use types::{AuthLevel, PrincipalId, Timestamp};
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 4 + 4 + 4 + 16 + 3 * 8 + PUBLIC_BYTES;
/// Of a public key.
pub const PUBLIC_BYTES: usize = 32;
/// Of a signature.
pub const SIGNATURE_BYTES: usize = 64;
/// Of any token at most.
pub const TOKEN_BYTES_MAX: usize =
    HEAD_BYTES + CELL_BYTES_MAX + PRINCIPAL_NAME_BYTES_MAX + SIGNATURE_BYTES;
/// Permitted difference of servers' clocks: a token is valid this much before its issue, and no
/// longer after its end.
pub const SKEW_SECS: i64 = 60;
const PROOF: &[u8] = b"rialto proof 1";

/// A public key.
pub type Public = [u8; PUBLIC_BYTES];
/// The bytes of a signature.
pub type Signature = [u8; SIGNATURE_BYTES];
/// Identifies one connection.
pub type Binding = [u8; 32];

/// The statement that a client presents: a principal, until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The cell's name.
    pub cell: String,
    /// The number of the cell's key that signs it.
    pub key: u32,
    /// The token's own number.
    pub number: u128,
    /// The user's number.
    pub principal: PrincipalId,
    /// The user's name at the time of issue.
    pub name: String,
    /// How the user proved its identity: password, Kerberos, or the kernel's report.
    pub level: AuthLevel,
    /// When it was issued: seconds since 1970.
    pub issued: i64,
    /// When it expires.
    pub expires: i64,
    /// Until when it can be renewed.
    pub renewable: i64,
    /// The client's key to which it is bound.
    pub client: Public,
}

/// The reason why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token, or not of this version.
    #[error("malformed token")]
    Malformed,
    /// Of another cell.
    #[error("a token of another cell")]
    OtherCell,
    /// Signed by a key that this cell does not have.
    #[error("a token of an unknown key")]
    UnknownKey,
    /// The signature is not the cell's.
    #[error("a forged token")]
    Forged,
    /// The client does not have its key, or proved it for another connection.
    #[error("a token without proof")]
    Unproved,
    /// Expired, or not yet valid.
    #[error("an expired token")]
    Expired,
}

/// A key that signs: the cell's or a client's. Its secret half never leaves it.
pub struct Signer(Ed25519KeyPair);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// Builds the key from its seed.
    pub fn new(seed: &[u8; 32]) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed"))
    }

    /// A new key, with its seed.
    pub fn random() -> (Zeroizing<[u8; 32]>, Signer) {
        let mut seed = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut seed[..]).expect("the system has random numbers");
        let signer = Signer::new(&seed);
        (seed, signer)
    }

    /// The public half.
    pub fn public(&self) -> Public {
        self.0.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes")
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Signature {
        self.0.sign(bytes).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

pub(crate) fn is_signed(by: &Public, bytes: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, by).verify(bytes, signature).is_ok()
}

impl Token {
    /// The token in its one form. The lengths of its names are within the limits of cells and
    /// principals.
    pub fn sign(&self, cell: &Signer) -> Vec<u8> {
        let signature = cell.sign(&self.body());
        self.with_signature(&signature)
    }

    pub(crate) fn with_signature(&self, signature: &Signature) -> Vec<u8> {
        let mut bytes = self.body();
        bytes.extend_from_slice(signature);
        bytes
    }

    fn body(&self) -> Vec<u8> {
        debug_assert!(
            self.cell.len() <= CELL_BYTES_MAX && self.name.len() <= PRINCIPAL_NAME_BYTES_MAX,
            "AC-3: a token has one form, with lengths in a byte"
        );
        let mut bytes =
            vec![VERSION, self.level as u8, self.cell.len() as u8, self.name.len() as u8];
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.principal.0.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        for time in [self.issued, self.expires, self.renewable] {
            bytes.extend(time.to_le_bytes());
        }
        bytes.extend(self.client);
        bytes.extend(self.cell.as_bytes());
        bytes.extend(self.name.as_bytes());
        bytes
    }

    /// Parses a token without checking the signature, which it returns too.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn parse(bytes: &[u8]) -> Result<(Token, Signature), TokenError> {
        let malformed = TokenError::Malformed;
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(malformed)?;
        let (names, signature) = rest.split_last_chunk::<SIGNATURE_BYTES>().ok_or(malformed)?;
        let [version, level, cell_bytes, name_bytes] =
            *head.first_chunk().expect("a head has four bytes");
        let (cell_bytes, name_bytes) = (usize::from(cell_bytes), usize::from(name_bytes));
        let fits = cell_bytes <= CELL_BYTES_MAX && name_bytes <= PRINCIPAL_NAME_BYTES_MAX;
        if version != VERSION || !fits || names.len() != cell_bytes + name_bytes {
            return Err(malformed);
        }
        let (cell, name) = names.split_at(cell_bytes);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| malformed);
        let level =
            AuthLevel::from_wire(level).filter(|level| level.is_of_tokens()).ok_or(malformed)?;
        let token = Token {
            cell: text(cell)?,
            name: text(name)?,
            level,
            key: u32::from_le_bytes(part(head, 4)),
            principal: PrincipalId(i32::from_le_bytes(part(head, 8))),
            number: u128::from_le_bytes(part(head, 12)),
            issued: i64::from_le_bytes(part(head, 28)),
            expires: i64::from_le_bytes(part(head, 36)),
            renewable: i64::from_le_bytes(part(head, 44)),
            client: part(head, 52),
        };
        Ok((token, *signature))
    }

    /// Parses a token of this cell, signed by one of its keys, that is valid at `now`. Whether the
    /// client has its key is checked by [`Token::is_proved`].
    ///
    /// # Errors
    /// The reason. A forged token is never reported as expired, nor one of another cell as forged.
    pub fn verify(
        bytes: &[u8],
        cell: &str,
        key: impl FnOnce(u32) -> Option<Public>,
        now: Timestamp,
    ) -> Result<Token, TokenError> {
        let (token, signature) = Token::parse(bytes)?;
        if token.cell != cell {
            return Err(TokenError::OtherCell);
        }
        let key = key(token.key).ok_or(TokenError::UnknownKey)?;
        let body = bytes.len() - SIGNATURE_BYTES;
        if !is_signed(&key, &bytes[..body], &signature) {
            return Err(TokenError::Forged);
        }
        if now.secs >= token.expires || now.secs < token.issued.saturating_sub(SKEW_SECS) {
            return Err(TokenError::Expired);
        }
        Ok(token)
    }

    /// Whether the proof was made with the key that the token is bound to, for this connection.
    /// `bytes`: the token as received.
    pub fn is_proved(&self, bytes: &[u8], binding: &Binding, proof: &Signature) -> bool {
        is_signed(&self.client, &proved(bytes, binding), proof)
    }
}

/// Proves over the connection with this binding that the client has the token's key.
pub fn prove(token: &[u8], binding: &Binding, client: &Signer) -> Signature {
    client.sign(&proved(token, binding))
}

/// The binding of a connection: the certificate that the server presented (none: zeros), and the
/// server's random challenge when the client attached.
pub fn binding(certificate: Option<&[u8; 32]>, challenge: &[u8; 32]) -> Binding {
    let both = [*certificate.unwrap_or(&[0; 32]), *challenge].concat();
    sha256(&both)
}

fn proved(token: &[u8], binding: &Binding) -> Vec<u8> {
    [PROOF, &sha256(token), binding].concat()
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The bytes at an offset within the head.
fn part<const N: usize>(head: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    let end = at + N;
    head[at..end].try_into().expect("the place is within the head")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::new(10_000, 0);

    fn token(client: &Signer) -> Token {
        Token {
            cell: "example.org".to_owned(),
            key: 3,
            number: 7,
            principal: PrincipalId(1),
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            issued: NOW.secs,
            expires: NOW.secs + 100,
            renewable: NOW.secs + 1000,
            client: client.public(),
        }
    }

    fn keys() -> (Signer, Signer) {
        (Signer::new(&[1; 32]), Signer::new(&[2; 32]))
    }

    fn verify(bytes: &[u8], cell: &Signer, now: i64) -> Result<Token, TokenError> {
        let key = |number| (number == 3).then(|| cell.public());
        Token::verify(bytes, "example.org", key, Timestamp::new(now, 0))
    }

    #[test]
    fn a_token_is_what_was_signed_and_nothing_else() {
        let (cell, client) = keys();
        let made = token(&client);
        let bytes = made.sign(&cell);
        assert_eq!(verify(&bytes, &cell, NOW.secs), Ok(made.clone()));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(verify(&changed, &cell, NOW.secs).is_err(), "byte {at}");
            assert_eq!(verify(&bytes[..at], &cell, NOW.secs), Err(TokenError::Malformed));
        }
        assert_eq!(
            verify(&[&bytes[..], &[0]].concat(), &cell, NOW.secs),
            Err(TokenError::Malformed)
        );
        assert_eq!(verify(&bytes, &client, NOW.secs), Err(TokenError::Forged));
        let other = Token { cell: "example.com".to_owned(), ..made.clone() };
        assert_eq!(verify(&other.sign(&cell), &cell, NOW.secs), Err(TokenError::OtherCell));
        assert_eq!(
            verify(&Token { key: 4, ..made }.sign(&cell), &cell, NOW.secs),
            Err(TokenError::UnknownKey)
        );
    }

    #[test]
    fn it_is_good_from_when_it_was_made_until_it_ends() {
        let (cell, client) = keys();
        let bytes = token(&client).sign(&cell);
        for (now, good) in [(-SKEW_SECS - 1, false), (-SKEW_SECS, true), (99, true), (100, false)] {
            let expected = if good { Ok(()) } else { Err(TokenError::Expired) };
            assert_eq!(verify(&bytes, &cell, NOW.secs + now).map(drop), expected, "{now}");
        }
    }

    #[test]
    fn it_is_proved_by_its_key_for_its_connection_only() {
        let (cell, client) = keys();
        let made = token(&client);
        let bytes = made.sign(&cell);
        let here = binding(Some(&[9; 32]), &[5; 32]);
        let proof = prove(&bytes, &here, &client);
        assert!(made.is_proved(&bytes, &here, &proof));
        assert!(!made.is_proved(&bytes, &here, &prove(&bytes, &here, &cell)));
        for elsewhere in [
            binding(Some(&[8; 32]), &[5; 32]),
            binding(None, &[5; 32]),
            binding(Some(&[9; 32]), &[6; 32]),
        ] {
            assert!(!made.is_proved(&bytes, &elsewhere, &proof));
        }
        let other = Token { number: 8, ..made.clone() }.sign(&cell);
        assert!(!made.is_proved(&other, &here, &proof));
    }

    #[test]
    fn levels_that_tokens_cannot_have_are_malformed() {
        let (cell, client) = keys();
        for level in [AuthLevel::Nobody, AuthLevel::Named, AuthLevel::Server] {
            let bytes = Token { level, ..token(&client) }.sign(&cell);
            assert_eq!(verify(&bytes, &cell, NOW.secs), Err(TokenError::Malformed));
        }
    }

    #[test]
    fn the_longest_names_fit() {
        let (cell, client) = keys();
        let name = "n".repeat(PRINCIPAL_NAME_BYTES_MAX);
        let long = Token { cell: "c".repeat(CELL_BYTES_MAX), name, ..token(&client) };
        let bytes = long.sign(&cell);
        assert_eq!(bytes.len(), TOKEN_BYTES_MAX);
        assert_eq!(Token::parse(&bytes).map(|(token, _)| token), Ok(long));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_have_one_form(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            crate::fuzzing::token(&bytes);
        }
    }
}
