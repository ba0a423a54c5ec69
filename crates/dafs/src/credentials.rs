//! How a client proves a caller's identity, and how a server verifies it.
//!
//! A request names a handle; the client registered the handle before on the same connection, by a
//! name alone ([`crate::message::Message::Credential`]) or by a token with a proof for this
//! connection ([`crate::message::Message::Token`]). The driver's [`Wallet`] and
//! [`CredentialVerifier`] decide what either stands for: this crate knows no tokens, keys or
//! clocks.

use std::fmt;

use bytes::Bytes;
use types::{Caller, Fault};

/// A hash of a certificate, or a random value.
pub type Hash = [u8; 32];

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 64;

/// A token, and the proof that its sender has the token's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenProof {
    /// At most [`types::limits::TOKEN_BYTES_MAX`] bytes.
    pub token: Bytes,
    /// Valid for one connection.
    pub proof: [u8; PROOF_BYTES],
}

/// The connection that a proof is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofContext {
    /// Hash of the certificate that the server showed over this connection, if it showed one.
    pub certificate: Option<Hash>,
    /// Random value of the server for this connection.
    pub challenge: Hash,
}

/// A client's tokens. Called under the session's lock, so it must not block.
pub trait Wallet: fmt::Debug + Send + Sync {
    /// Rises with every change of the tokens.
    fn changes(&self) -> u64;
    /// The token for this caller; `None`: the client only names the caller.
    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof>;
}

/// A server's verification of credentials over one connection. Called under the session's lock, so
/// it must not block.
pub trait CredentialVerifier: fmt::Debug + Send + Sync {
    /// The challenge for proofs over this connection.
    fn challenge(&self) -> Hash;
    /// The caller that the server accepts for a name.
    fn named(&self, caller: Caller) -> Caller;
    /// The caller that the server accepts for a token.
    ///
    /// # Errors
    /// The fault with which the server answers every request with this credential.
    fn shown(&self, shown: &TokenProof) -> Result<Caller, Fault>;
    /// May descriptors of bodies be handed out over this connection? The other end of one may keep
    /// it when its right to the file has ended.
    fn hands_out_bodies(&self) -> bool {
        true
    }
}

/// Accepts every name and knows no tokens: between parts of one process, and in tests.
#[derive(Clone, Copy, Debug)]
pub struct Trusting;

impl CredentialVerifier for Trusting {
    fn challenge(&self) -> Hash {
        [0; 32]
    }

    fn named(&self, caller: Caller) -> Caller {
        caller
    }

    fn shown(&self, _shown: &TokenProof) -> Result<Caller, Fault> {
        Err(Fault::TokenRefused)
    }
}
