//! Issues, renews and verifies tokens.
//!
//! Every server of a cell that has its signing keys can do all of it; none stores a list of tokens.
//! The principal's record is checked at each request for what voids a token early
//! (`vice/cell/identities.rs`). A token that was verified once is cached by its bytes, so that
//! clients that come back cost one signature.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use guard::{Binding, Public, Signature, Signer, Token, TokenError, TokenOrigin, TokenRequest};
use parking_lot::Mutex;
use types::Timestamp;

/// How long a token is valid: a working day.
pub const LIFETIME: Duration = Duration::from_secs(10 * 3600);
/// How long it can be renewed.
pub const RENEWABLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most cached tokens; when there are more, all are dropped.
const REMEMBERED_MAX: usize = 1 << 14;

/// The cell's keys that sign tokens.
pub trait SigningKeys: fmt::Debug + Send + Sync {
    /// The key that signs new tokens; `None`: this server issues none.
    fn newest(&self) -> Option<(u32, Arc<Signer>)>;
    /// The key that verifies signatures; `None` within a second after the key was removed. Called
    /// at each request: it may read a file, and does so seldom.
    fn public(&self, number: u32) -> Option<Public>;
}

/// The times of a token, in seconds since 1970.
struct TokenLife {
    issued: i64,
    expires: i64,
    renewable: i64,
}

/// Issues and verifies the tokens of one cell.
#[derive(Debug)]
pub struct TokenIssuer {
    cell: String,
    keys: Arc<dyn SigningKeys>,
    /// With the key that verified it.
    verified: Mutex<HashMap<Vec<u8>, (Token, Public)>>,
}

impl TokenIssuer {
    /// The tokens of the cell with this name and these keys.
    pub fn new(cell: &str, keys: Arc<dyn SigningKeys>) -> TokenIssuer {
        TokenIssuer { cell: cell.to_owned(), keys, verified: Mutex::default() }
    }

    /// A new token; `None`: this server has no key to sign with.
    pub fn issue(&self, request: &TokenRequest, now: Timestamp) -> Option<Vec<u8>> {
        let now = now.secs.max(request.not_before);
        let after = |by: Duration| now.saturating_add_unsigned(by.as_secs());
        let end = |by| request.ends.map_or(after(by), |ends| ends.min(after(by)));
        let life = TokenLife { issued: now, expires: end(LIFETIME), renewable: end(RENEWABLE) };
        self.sign(request, rand::random(), life)
    }

    fn sign(&self, request: &TokenRequest, number: u128, life: TokenLife) -> Option<Vec<u8>> {
        let (key, signer) = self.keys.newest()?;
        let TokenRequest { principal, name, level, client, .. } = request.clone();
        let (cell, TokenLife { issued, expires, renewable }) = (self.cell.clone(), life);
        let token =
            Token { cell, key, number, principal, name, level, issued, expires, renewable, client };
        Some(token.sign(&signer))
    }

    /// A newer token for one that is still valid, bound to the same key.
    ///
    /// # Errors
    /// `Expired`, if it can no longer be renewed.
    pub fn renew(&self, token: &Token, now: Timestamp) -> Result<Option<Vec<u8>>, TokenError> {
        if now.secs >= token.renewable || now.secs >= token.expires {
            return Err(TokenError::Expired);
        }
        let Token { principal, name, level, client, .. } = token.clone();
        let expires = now.secs.saturating_add_unsigned(LIFETIME.as_secs()).min(token.renewable);
        let request = TokenRequest { principal, name, level, client, not_before: 0, ends: None };
        // The principal changes that void the old token must void the new one: it keeps the issue
        // time of the first.
        let life = TokenLife { issued: token.issued, expires, renewable: token.renewable };
        Ok(self.sign(&request, rand::random(), life))
    }

    /// A token for another key of the holder of the token `origin`: with its number and its time of
    /// issue, so that a fence and a change of the principal meet both, and with its end, which no
    /// renewal moves.
    ///
    /// # Errors
    /// `Expired`, if that one has expired.
    pub fn derive(
        &self,
        request: &TokenRequest,
        origin: &TokenOrigin,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, TokenError> {
        let TokenOrigin { number, issued, expires } = *origin;
        if now.secs >= expires {
            return Err(TokenError::Expired);
        }
        Ok(self.sign(request, number, TokenLife { issued, expires, renewable: expires }))
    }

    /// Accepts a token of this cell that is valid now, shown by the holder of its key over the
    /// connection with this binding.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn take(
        &self,
        bytes: &[u8],
        binding: &Binding,
        proof: &Signature,
        now: Timestamp,
    ) -> Result<Token, TokenError> {
        let token = self.verify(bytes, now)?;
        if token.is_proved(bytes, binding, proof) { Ok(token) } else { Err(TokenError::Unproved) }
    }

    /// Are tokens that this key signed accepted now?
    pub fn believes(&self, key: u32) -> bool {
        self.keys.public(key).is_some()
    }

    /// Verifies a token of this cell that is valid now, without a proof of its holder.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn verify(&self, bytes: &[u8], now: Timestamp) -> Result<Token, TokenError> {
        let known = self.verified.lock().get(bytes).cloned();
        if let Some((token, by)) = known {
            if self.keys.public(token.key) != Some(by) {
                self.verified.lock().remove(bytes);
                return Err(TokenError::UnknownKey);
            }
            return if now.secs < token.expires { Ok(token) } else { Err(TokenError::Expired) };
        }
        let token = Token::verify(bytes, &self.cell, |number| self.keys.public(number), now)?;
        let by = self.keys.public(token.key).ok_or(TokenError::UnknownKey)?;
        let mut verified = self.verified.lock();
        if verified.len() >= REMEMBERED_MAX {
            verified.clear();
        }
        verified.insert(bytes.to_vec(), (token.clone(), by));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use types::{AuthLevel, PrincipalId};

    use super::*;

    #[derive(Debug)]
    struct Keys(Arc<Signer>);

    impl SigningKeys for Keys {
        fn newest(&self) -> Option<(u32, Arc<Signer>)> {
            Some((1, Arc::clone(&self.0)))
        }

        fn public(&self, number: u32) -> Option<Public> {
            (number == 1).then(|| self.0.public())
        }
    }

    const NOW: Timestamp = Timestamp::new(1_000_000, 0);

    fn mint(cell: &str, seed: u8) -> TokenIssuer {
        TokenIssuer::new(cell, Arc::new(Keys(Arc::new(Signer::new(&[seed; 32])))))
    }

    fn later(by: Duration) -> Timestamp {
        NOW.later(by)
    }

    #[test]
    fn ac3_a_derived_token_outlives_its_origin_in_no_way() {
        let mint = mint("a.org", 1);
        let (first, second) = (Signer::new(&[9; 32]), Signer::new(&[8; 32]));
        let request = |client: &Signer| TokenRequest {
            principal: PrincipalId(7),
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            client: client.public(),
            not_before: 0,
            ends: None,
        };
        let bytes = mint.issue(&request(&first), NOW).unwrap();
        let token = mint.verify(&bytes, NOW).unwrap();
        let Token { number, issued, expires, .. } = token;
        let origin = TokenOrigin { number, issued, expires };
        let late = later(LIFETIME - Duration::from_secs(1));
        let derived = mint.derive(&request(&second), &origin, late).unwrap().unwrap();
        let derived = mint.verify(&derived, late).unwrap();
        assert_eq!(
            (derived.number, derived.issued, derived.expires, derived.renewable),
            (number, issued, expires, expires)
        );
        assert_eq!(
            (derived.principal, derived.level, derived.client),
            (token.principal, token.level, second.public())
        );
        let renewed = mint.renew(&derived, late).unwrap().unwrap();
        assert_eq!(mint.verify(&renewed, late).unwrap().expires, expires, "renewed");
        let after = mint.derive(&request(&second), &origin, later(LIFETIME));
        assert_eq!(after, Err(TokenError::Expired));
    }

    #[test]
    fn an_issued_token_is_accepted_from_its_holder_until_it_ends() {
        let (mint, other, forger) = (mint("a.org", 1), mint("b.org", 1), mint("a.org", 2));
        let client = Signer::new(&[9; 32]);
        let request = TokenRequest {
            principal: PrincipalId(7),
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            client: client.public(),
            not_before: 0,
            ends: None,
        };
        let bytes = mint.issue(&request, NOW).unwrap();
        let binding = guard::binding(None, &[1; 32]);
        let proof = guard::prove(&bytes, &binding, &client);
        let token = mint.take(&bytes, &binding, &proof, NOW).unwrap();
        assert_eq!(
            (token.principal, token.level, token.issued),
            (PrincipalId(7), AuthLevel::Password, NOW.secs)
        );
        assert_eq!(
            mint.take(&bytes, &guard::binding(None, &[2; 32]), &proof, NOW),
            Err(TokenError::Unproved)
        );
        assert_eq!(other.take(&bytes, &binding, &proof, NOW), Err(TokenError::OtherCell));
        assert_eq!(forger.take(&bytes, &binding, &proof, NOW), Err(TokenError::Forged));
        assert_eq!(mint.take(&bytes, &binding, &proof, later(LIFETIME)), Err(TokenError::Expired));
        let renewed = mint.renew(&token, later(LIFETIME / 2)).unwrap().unwrap();
        let proof = guard::prove(&renewed, &binding, &client);
        let newer = mint.take(&renewed, &binding, &proof, later(LIFETIME)).unwrap();
        assert_eq!((newer.issued, newer.principal), (token.issued, token.principal));
        assert_ne!(newer.number, token.number);
        assert_eq!(mint.renew(&token, later(LIFETIME)), Err(TokenError::Expired));
        let last = Token { expires: i64::MAX, ..newer };
        assert_eq!(mint.renew(&last, later(RENEWABLE)), Err(TokenError::Expired));
        let short = mint.issue(&TokenRequest { ends: Some(NOW.secs + 5), ..request }, NOW).unwrap();
        assert_eq!(Token::parse(&short).unwrap().0.expires, NOW.secs + 5);
    }
}
