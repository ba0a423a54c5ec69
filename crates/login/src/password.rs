//! Passwords: what is kept of them, and who may try.
//!
//! Kept is what argon2id makes of one (`$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`), with a salt of its own. To look at one costs some tens of milliseconds and 19 MiB, so
//! only a few are looked at at a time, and a user without a password costs as much as one with a wrong one.
//!
//! *Attempts* are counted for each pair of user and host: after [`FREE`] wrong ones in a row each next one has to wait, twice as long each time, up to
//! [`WAIT_MAX`]. So who guesses from one place keeps nobody out who comes from another; and who guesses from many places has [`FREE`] guesses at each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use parking_lot::{Condvar, Mutex};
use types::limits::{PASSWORD_BYTES_MAX, PASSWORD_BYTES_MIN};
use types::{Secret, Time};

/// Wrong attempts in a row that cost nothing.
pub const FREE: u32 = 5;
/// How long an attempt may have to wait.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// Pairs of user and host that are counted; the oldest are forgotten.
const COUNTED_MAX: usize = 1 << 16;
/// Looked at at a time.
const AT_ONCE: u32 = 2;

/// Why a password is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes")]
pub struct BadPassword;

/// Who must wait before he may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many wrong attempts: the next one may be made in {} s", .0.as_secs().max(1))]
pub struct TooMany(pub Duration);

/// Looks at passwords.
#[derive(Debug, Default)]
pub struct Passwords {
    attempts: Mutex<HashMap<(String, Option<IpAddr>), Attempts>>,
    busy: Mutex<u32>,
    free: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Attempts {
    wrong: u32,
    next: Time,
}

impl Passwords {
    /// What is kept of a new password.
    ///
    /// # Errors
    /// [`BadPassword`].
    pub fn keep(&self, password: &Secret) -> Result<String, BadPassword> {
        if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.reveal().len()) {
            return Err(BadPassword);
        }
        let _turn = self.turn();
        let hash = Argon2::default().hash_password(password.reveal());
        Ok(hash.expect("a password of that length can be hashed").to_string())
    }

    /// Whether this is the password of which `kept` is kept. `None`: he has none, which takes as long to find out.
    ///
    /// # Errors
    /// [`TooMany`]: nothing was looked at.
    pub fn is_right(
        &self,
        now: Time,
        who: (&str, Option<IpAddr>),
        kept: Option<&str>,
        password: &Secret,
    ) -> Result<bool, TooMany> {
        let who = (who.0.to_owned(), who.1);
        self.count(now, &who)?;
        let parsed = kept.and_then(|kept| PasswordHash::new(kept).ok());
        let right = {
            let _turn = self.turn();
            match &parsed {
                Some(hash) => Argon2::default().verify_password(password.reveal(), hash).is_ok(),
                None => {
                    let _ = Argon2::default().hash_password_into(password.reveal(), b"nobody has it", &mut [0; 32]);
                    false
                }
            }
        };
        if right {
            self.attempts.lock().remove(&who);
        }
        Ok(right)
    }

    /// One more attempt, wrong until it is seen to be right: many at the same time are many.
    fn count(&self, now: Time, who: &(String, Option<IpAddr>)) -> Result<(), TooMany> {
        let mut attempts = self.attempts.lock();
        if attempts.len() >= COUNTED_MAX && !attempts.contains_key(who) {
            attempts.retain(|_, one| one.next > now);
            if attempts.len() >= COUNTED_MAX {
                attempts.clear();
            }
        }
        let one = attempts.entry(who.clone()).or_insert(Attempts { wrong: 0, next: Time::ZERO });
        if now < one.next {
            return Err(TooMany(one.next.since(now)));
        }
        one.wrong += 1;
        if one.wrong >= FREE {
            let doublings = (one.wrong - FREE).min(16);
            one.next = now + (WAIT_FIRST * (1 << doublings)).min(WAIT_MAX);
        }
        Ok(())
    }

    fn turn(&self) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while *busy >= AT_ONCE {
            self.free.wait(&mut busy);
        }
        *busy += 1;
        Turn(self)
    }
}

struct Turn<'a>(&'a Passwords);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.busy.lock() -= 1;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    fn at(secs: u64) -> Time {
        Time::from_start(Duration::from_secs(secs))
    }

    #[test]
    fn a_password_is_right_and_no_other_and_nothing_of_it_is_kept() {
        let passwords = Passwords::default();
        let kept = passwords.keep(&secret("open sesame")).unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert_ne!(kept, passwords.keep(&secret("open sesame")).unwrap(), "each has a salt of its own");
        let right = |password: &str, kept| passwords.is_right(at(0), (password, None), kept, &secret(password));
        assert_eq!(right("open sesame", Some(&*kept)), Ok(true));
        for (password, kept) in [("open sesamE", Some(&*kept)), ("", Some(&*kept)), ("x", None), ("y", Some("noise"))] {
            assert_eq!(right(password, kept), Ok(false), "{password}");
        }
        assert_eq!(passwords.keep(&secret("short")), Err(BadPassword));
        assert_eq!(passwords.keep(&secret(&"x".repeat(PASSWORD_BYTES_MAX + 1))), Err(BadPassword));
        assert_eq!(format!("{:?}", secret("open sesame")), "Secret");
    }

    #[test]
    fn who_guesses_waits_and_keeps_nobody_else_out() {
        let passwords = Passwords::default();
        let kept = passwords.keep(&secret("open sesame")).unwrap();
        let here = Some([10, 0, 0, 1].into());
        let there = Some([10, 0, 0, 2].into());
        let tries = |now, host, password| passwords.is_right(at(now), ("joe", host), Some(&kept), &secret(password));
        for _ in 0..FREE {
            assert_eq!(tries(0, here, "guess it"), Ok(false));
        }
        assert_eq!(tries(0, here, "open sesame"), Err(TooMany(Duration::from_secs(1))), "nor the right one");
        assert_eq!(tries(0, there, "open sesame"), Ok(true), "from elsewhere");
        assert_eq!(tries(1, here, "guess it"), Ok(false));
        assert_eq!(tries(2, here, "guess it"), Err(TooMany(Duration::from_secs(1))), "twice as long");
        assert_eq!(tries(3, here, "open sesame"), Ok(true));
        assert_eq!(tries(3, here, "guess it"), Ok(false), "it begins anew");
        let mut now = 4;
        for _ in 0..40 {
            if let Err(TooMany(wait)) = tries(now, here, "guess it") {
                assert!(wait <= WAIT_MAX);
                now += wait.as_secs();
            }
        }
    }
}
