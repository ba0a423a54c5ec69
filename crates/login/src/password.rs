//! Passwords: their stored hashes, and limits on attempts.
//!
//! The hash is that of argon2id (`$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`), with a salt of its
//! own. Verifying one costs some tens of milliseconds and 19 MiB, so only a few are verified at a
//! time, and a user without a password costs as much as one with a wrong one.
//!
//! *Attempts* are counted for each pair of user and host (of IPv6 the /64): after [`FREE`] wrong
//! ones in a row each next one has to wait, twice as long each time, up to [`WAIT_MAX`]. So guesses
//! from one host do not delay logins from another. For each user they are counted over all hosts
//! too, except hosts from which the user has logged in: after [`FREE_OF_ALL`] in a row attempts
//! from the others wait in the same way. So an attacker with many hosts has few guesses, and locks
//! the user out of none of the user's own machines.
//!
//! Only names of users who have a password take a place in these tables, and only [`COUNTED_MAX`];
//! an unknown name takes none, since it has no password to guess. Where a table is full, the pair
//! goes that may try again first: it loses least.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use argon2::password_hash::phc::{Output, PasswordHash};
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use guard::Tried;
use parking_lot::{Condvar, Mutex};
use types::limits::{PASSWORD_BYTES_MAX, PASSWORD_BYTES_MIN};
use types::{Secret, Time};

/// Wrong attempts in a row that cause no wait.
pub const FREE: u32 = 5;
/// The longest wait before an attempt.
pub const WAIT_MAX: Duration = Duration::from_secs(300);
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// Wrong attempts in a row at one user, from hosts that never succeeded, that cause a wait for none
/// but the host.
pub const FREE_OF_ALL: u32 = 50;
/// The most pairs of user and host, and the most users, that are counted.
const COUNTED_MAX: usize = 1 << 16;
/// The most hosts of one user that are remembered for their success.
const KNOWN_HOSTS_MAX: usize = 32;
/// How many passwords are verified at a time.
const AT_ONCE: u32 = 2;

/// Why a password is not accepted as a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a password has {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} bytes")]
pub struct BadPassword;

/// How long the caller must wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many wrong attempts: the next one may be made in {} s", .0.as_secs().max(1))]
pub struct TooMany(pub Duration);

/// Hashes and verifies passwords.
#[derive(Default)]
pub struct Passwords {
    attempts: Mutex<Counted>,
    busy: Mutex<u32>,
    free: Condvar,
    memory: Mutex<Vec<Vec<Block>>>,
}

#[derive(Default)]
struct Counted {
    pairs: HashMap<(String, Option<IpAddr>), Attempts>,
    users: HashMap<String, User>,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passwords")
    }
}

/// A user, over all hosts.
#[derive(Debug, Default)]
struct User {
    from_strange_hosts: Attempts,
    /// The hosts of successful logins, the latest last.
    known: Vec<Option<IpAddr>>,
}

#[derive(Clone, Copy, Debug)]
struct Attempts {
    wrong: u32,
    next: Time,
}

impl Default for Attempts {
    fn default() -> Self {
        Attempts { wrong: 0, next: Time::ZERO }
    }
}

impl Attempts {
    fn may(&self, now: Time) -> Result<(), TooMany> {
        if now < self.next { Err(TooMany(self.next.since(now))) } else { Ok(()) }
    }

    /// Counts one more. `true`: it is the first that makes the next one wait.
    fn count(&mut self, now: Time, free: u32) -> bool {
        self.wrong += 1;
        if self.wrong >= free {
            let doublings = (self.wrong - free).min(16);
            self.next = now + (WAIT_FIRST * (1 << doublings)).min(WAIT_MAX);
        }
        self.wrong == free
    }
}

/// Of IPv6 the /64: one machine can use any number of its addresses.
fn network(host: Option<IpAddr>) -> Option<IpAddr> {
    host.map(|host| match host.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    })
}

impl Counted {
    /// Counts one more attempt at an existing user, as wrong until it is verified: so simultaneous
    /// attempts all count.
    fn count(&mut self, now: Time, who: &(String, Option<IpAddr>)) -> Result<bool, TooMany> {
        if let Some(pair) = self.pairs.get(who) {
            pair.may(now)?;
        }
        let user = self.users.get(&who.0);
        let is_known = user.is_some_and(|user| user.known.contains(&who.1));
        if let Some(user) = user.filter(|_| !is_known) {
            user.from_strange_hosts.may(now)?;
        }
        make_room(&mut self.pairs, who, |attempts| attempts.next);
        self.pairs.entry(who.clone()).or_default().count(now, FREE);
        if is_known {
            return Ok(false);
        }
        // Users who were guessed at or have logged in: at most as many as there are users.
        make_room(&mut self.users, &who.0, |user| user.from_strange_hosts.next);
        Ok(self.users.entry(who.0.clone()).or_default().from_strange_hosts.count(now, FREE_OF_ALL))
    }

    fn was_right(&mut self, who: &(String, Option<IpAddr>)) {
        self.pairs.remove(who);
        let user = self.users.entry(who.0.clone()).or_default();
        user.from_strange_hosts = Attempts::default();
        user.known.retain(|host| *host != who.1);
        user.known.push(who.1);
        if user.known.len() > KNOWN_HOSTS_MAX {
            user.known.remove(0);
        }
    }
}

/// Makes room for one more: removes the entry that may try again first.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(
    table: &mut HashMap<K, V>,
    key: &K,
    next: fn(&V) -> Time,
) {
    if table.len() < COUNTED_MAX || table.contains_key(key) {
        return;
    }
    if let Some(first) =
        table.iter().min_by_key(|(_, value)| next(value)).map(|(key, _)| key.clone())
    {
        table.remove(&first);
    }
}

impl Passwords {
    /// The hash to store for a new password.
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

    /// Is this the password of which `kept` is the hash? `None`: the user has none, which takes as
    /// long to verify.
    ///
    /// # Errors
    /// [`TooMany`]: nothing was verified.
    pub fn is_right(
        &self,
        now: Time,
        who: (&str, Option<IpAddr>),
        kept: Option<&str>,
        password: &Secret,
    ) -> Result<Tried, TooMany> {
        let who = (who.0.to_owned(), network(who.1));
        let parsed = kept.and_then(|kept| PasswordHash::new(kept).ok());
        let alarm = match kept {
            Some(_) => self.attempts.lock().count(now, &who)?,
            None => false,
        };
        let right = {
            let mut turn = self.turn();
            match &parsed {
                Some(hash) => is_password(password, hash, &mut turn.memory),
                None => {
                    let mut none = [0; 32];
                    let _ = hash_into(
                        &Params::default(),
                        password,
                        b"nobody has it",
                        &mut none,
                        &mut turn.memory,
                    );
                    false
                }
            }
        };
        if right {
            self.attempts.lock().was_right(&who);
        }
        Ok(Tried { right, alarm: alarm && !right })
    }

    fn turn(&self) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while *busy >= AT_ONCE {
            self.free.wait(&mut busy);
        }
        *busy += 1;
        let memory = self.memory.lock().pop().unwrap_or_default();
        Turn { of: self, memory }
    }
}

/// One of [`AT_ONCE`], with the memory that it needs. That is reused: 19 MiB that come and go many
/// times a second leave a hundred times as much behind.
struct Turn<'a> {
    of: &'a Passwords,
    memory: Vec<Block>,
}

/// Is it the password of this hash?
fn is_password(password: &Secret, hash: &PasswordHash, memory: &mut Vec<Block>) -> bool {
    let ours =
        hash.algorithm == argon2::ARGON2ID_IDENT && hash.version == Some(Version::V0x13.into());
    let params = Params::try_from(hash).ok().filter(|params| ours && *params == Params::default());
    let (Some(params), Some(salt), Some(is)) = (params, &hash.salt, &hash.hash) else {
        return Argon2::default().verify_password(password.reveal(), hash).is_ok();
    };
    let mut of = [0; Output::MAX_LENGTH];
    let Some(of) = of.get_mut(..is.len()) else { return false };
    // The time of the comparison does not depend on the hashes.
    hash_into(&params, password, salt.as_ref(), of, memory)
        && Output::new(of).is_ok_and(|of| of == *is)
}

fn hash_into(
    params: &Params,
    password: &Secret,
    salt: &[u8],
    out: &mut [u8],
    memory: &mut Vec<Block>,
) -> bool {
    memory.resize(params.block_count(), Block::new());
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    argon.hash_password_into_with_memory(password.reveal(), salt, out, memory).is_ok()
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.memory.lock().push(std::mem::take(&mut self.memory));
        *self.of.busy.lock() -= 1;
        self.of.free.notify_one();
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
        assert_ne!(
            kept,
            passwords.keep(&secret("open sesame")).unwrap(),
            "each has a salt of its own"
        );
        let right = |password: &str, kept| {
            passwords
                .is_right(at(0), (password, None), kept, &secret(password))
                .map(|tried| tried.right)
        };
        assert_eq!(right("open sesame", Some(&*kept)), Ok(true));
        for (password, kept) in
            [("open sesamE", Some(&*kept)), ("", Some(&*kept)), ("x", None), ("y", Some("noise"))]
        {
            assert_eq!(right(password, kept), Ok(false), "{password}");
        }
        assert_eq!(passwords.keep(&secret("short")), Err(BadPassword));
        assert_eq!(passwords.keep(&secret(&"x".repeat(PASSWORD_BYTES_MAX + 1))), Err(BadPassword));
        assert_eq!(format!("{:?}", secret("open sesame")), "Secret");
    }

    #[test]
    fn guesses_delay_only_their_own_host() {
        let passwords = Passwords::default();
        let kept = passwords.keep(&secret("open sesame")).unwrap();
        let here = Some([10, 0, 0, 1].into());
        let there = Some([10, 0, 0, 2].into());
        let tries = |now, host, password| {
            let tried = passwords.is_right(at(now), ("joe", host), Some(&kept), &secret(password));
            tried.map(|tried| tried.right)
        };
        for _ in 0..FREE {
            assert_eq!(tries(0, here, "guess it"), Ok(false));
        }
        assert_eq!(
            tries(0, here, "open sesame"),
            Err(TooMany(Duration::from_secs(1))),
            "nor the right one"
        );
        assert_eq!(tries(0, there, "open sesame"), Ok(true), "from elsewhere");
        assert_eq!(tries(1, here, "guess it"), Ok(false));
        assert_eq!(
            tries(2, here, "guess it"),
            Err(TooMany(Duration::from_secs(1))),
            "twice as long"
        );
        assert_eq!(tries(3, here, "open sesame"), Ok(true));
        assert_eq!(tries(3, here, "guess it"), Ok(false), "the count starts again");
        let mut now = 4;
        for _ in 0..40 {
            if let Err(TooMany(wait)) = tries(now, here, "guess it") {
                assert!(wait <= WAIT_MAX);
                now += wait.as_secs();
            }
        }
    }

    fn host(number: u32) -> Option<IpAddr> {
        Some(number.to_be_bytes().into())
    }

    /// Counts as a wrong or right attempt would, without the hash.
    fn attempt(
        counted: &mut Counted,
        now: u64,
        name: &str,
        from: Option<IpAddr>,
    ) -> Result<bool, TooMany> {
        counted.count(at(now), &(name.to_owned(), network(from)))
    }

    #[test]
    fn m16_guesses_from_many_hosts_wait_and_the_users_own_host_not() {
        let mut counted = Counted::default();
        let own = ("joe".to_owned(), host(1));
        attempt(&mut counted, 0, "joe", host(1)).unwrap();
        counted.was_right(&own);
        let alarms: Vec<bool> = (100..100 + FREE_OF_ALL)
            .map(|of| attempt(&mut counted, 0, "joe", host(of)).unwrap())
            .collect();
        assert_eq!(
            alarms.iter().position(|alarm| *alarm),
            Some(FREE_OF_ALL as usize - 1),
            "one alarm, at the last"
        );
        assert!(
            attempt(&mut counted, 0, "joe", host(9999)).is_err(),
            "M16: a host without a login"
        );
        assert!(
            attempt(&mut counted, 0, "joe", host(1)).is_ok(),
            "the user's own is not locked out"
        );
        assert!(attempt(&mut counted, 0, "ann", host(9999)).is_ok(), "nor is another user");
        let longest =
            (0..40).fold(1, |now, of| match attempt(&mut counted, now, "joe", host(50_000 + of)) {
                Ok(_) => now,
                Err(TooMany(wait)) => {
                    assert!(wait <= WAIT_MAX);
                    now + wait.as_secs()
                }
            });
        assert!(longest > 60, "in {longest} s some 40 guesses from as many hosts");
    }

    #[test]
    fn of_ipv6_a_network_is_one_host() {
        let mut counted = Counted::default();
        for of in 0..FREE {
            let from = format!("2001:db8::{of}").parse().ok();
            attempt(&mut counted, 0, "joe", from).unwrap();
        }
        assert!(attempt(&mut counted, 0, "joe", "2001:db8::ffff".parse().ok()).is_err());
        assert!(attempt(&mut counted, 0, "joe", "2001:db8:0:1::1".parse().ok()).is_ok());
    }

    #[test]
    fn a_flood_of_names_evicts_no_count() {
        let passwords = Passwords::default();
        let wrong = |name: &str, kept: Option<&str>| {
            passwords.is_right(at(0), (name, host(1)), kept, &secret("x"))
        };
        // This stored text is no hash, so the test is fast.
        (0..FREE).for_each(|_| assert!(wrong("joe", Some("noise")).is_ok()));
        assert!(wrong("joe", Some("noise")).is_err());
        for name in 0..20 {
            wrong(&name.to_string(), None).unwrap();
        }
        assert_eq!(passwords.attempts.lock().pairs.len(), 1, "unknown names take no place");
        let mut counted = passwords.attempts.lock();
        for name in 0..COUNTED_MAX as u32 + 100 {
            attempt(&mut counted, 0, &name.to_string(), host(7)).unwrap();
        }
        assert!(counted.pairs.len() <= COUNTED_MAX && counted.users.len() <= COUNTED_MAX);
        assert!(
            attempt(&mut counted, 0, "joe", host(1)).is_err(),
            "a waiting pair goes on waiting"
        );
    }
}
