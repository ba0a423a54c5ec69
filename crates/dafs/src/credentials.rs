//! How a client shows who asks, and how a server takes it.
//!
//! A request names a handle; the handle was registered before on the same connection, by a name
//! alone ([`crate::message::Message::Credential`]) or by a token with a proof that is made for this
//! connection ([`crate::message::Message::Token`]). What either stands for is decided by what the
//! driver brings along: here nobody knows tokens, keys or clocks.

use std::fmt;

use bytes::Bytes;
use types::{Caller, Fault};

/// A hash: of a certificate, or random.
pub type Hash = [u8; 32];

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 64;

/// A token, and the proof that who shows it has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenProof {
    /// At most [`types::limits::TOKEN_BYTES_MAX`] bytes.
    pub token: Bytes,
    /// For one connection.
    pub proof: [u8; PROOF_BYTES],
}

/// What a proof is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofContext {
    /// Of the certificate that the server showed over this connection, if it showed one.
    pub certificate: Option<Hash>,
    /// What the server made up for this connection.
    pub challenge: Hash,
}

/// A client's tokens. Asked under the session's lock, so it must not wait for anybody.
pub trait Wallet: fmt::Debug + Send + Sync {
    /// Rises with every change of what is in it.
    fn changes(&self) -> u64;
    /// What to show for this caller; `None`: he is only named.
    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof>;
}

/// A server's word on who somebody is, over one connection. Asked under the session's lock, so it
/// must not wait for anybody.
pub trait CredentialVerifier: fmt::Debug + Send + Sync {
    /// What proofs over this connection are made for.
    fn challenge(&self) -> Hash;
    /// Whom a name stands for here.
    fn named(&self, caller: Caller) -> Caller;
    /// Whom a token stands for.
    ///
    /// # Errors
    /// What every request with this credential is answered.
    fn shown(&self, shown: &TokenProof) -> Result<Caller, Fault>;
}

/// Believes every name and knows no tokens: between parts of one process, and in tests.
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
