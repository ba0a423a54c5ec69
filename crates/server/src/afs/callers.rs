//! Users by their tickets.
//!
//! A principal of the cell's realm is the user of the same name (`joe`, `joe/admin`), one of
//! another realm is `joe@realm`, the realm in small letters. A name that no user has is a caller
//! that proved nothing. A ticket that was printed with the cell's key is a server's: its caller is
//! the superuser, as AFS has it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rx::RxCaller;
use rx::rxkad::RxkadLevel;
use types::{AuthLevel, Caller, PrincipalId, RequestIdentity, Timestamp};

/// The uid and gid of *nobody* for mode bits.
const NOBODY_ID: u32 = 65534;
/// A name is looked up again after this time.
const REMEMBERED: Duration = Duration::from_secs(60);
const REMEMBERED_MAX: usize = 16_384;

/// See the head of the file.
pub(super) struct CallerNames {
    /// In capitals.
    realm: String,
    known: Mutex<HashMap<String, (PrincipalId, Instant)>>,
}

/// A caller before its name is looked up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProvedIdentity {
    Nobody,
    Server,
    User(String),
}

impl CallerNames {
    pub fn new(realm: &str) -> CallerNames {
        CallerNames { realm: realm.to_uppercase(), known: Mutex::default() }
    }

    /// The identity that a caller proved.
    pub fn identity_of(&self, caller: &RxCaller) -> ProvedIdentity {
        let RxCaller::Krb { name, instance, cell, is_local_auth, .. } = caller else {
            return ProvedIdentity::Nobody;
        };
        if *is_local_auth {
            return ProvedIdentity::Server;
        }
        // Two principals could be meant by a name with such a character.
        let is_plain = |part: &str| !part.contains(['.', '/', '@']);
        if name.is_empty() || !is_plain(name) || !is_plain(instance) {
            return ProvedIdentity::Nobody;
        }
        let user = if instance.is_empty() { name.clone() } else { format!("{name}/{instance}") };
        let is_own = cell.is_empty() || cell.to_uppercase() == self.realm;
        ProvedIdentity::User(if is_own { user } else { format!("{user}@{}", cell.to_lowercase()) })
    }

    /// The number of a user; `look_up` asks the cell.
    ///
    /// # Errors
    /// Those of `look_up`.
    pub fn number_of<E>(
        &self,
        name: &str,
        look_up: impl FnOnce() -> Result<PrincipalId, E>,
    ) -> Result<PrincipalId, E> {
        if let Some((id, at)) = self.known.lock().get(name)
            && at.elapsed() < REMEMBERED
        {
            return Ok(*id);
        }
        let id = look_up()?;
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (id, Instant::now()));
        Ok(id)
    }
}

/// A caller that proved nothing.
pub(super) fn nobody(host: IpAddr) -> Caller {
    let who = RequestIdentity { host: Some(host), overheard: true, ..RequestIdentity::NOBODY };
    Caller { uid: NOBODY_ID, gid: NOBODY_ID, groups: Some(Box::default()), who }
}

/// A user, whom a ticket names.
pub(super) fn user(principal: PrincipalId, proof: &RxCaller, host: IpAddr) -> Caller {
    let RxCaller::Krb { level, issued, expires, .. } = proof else { return nobody(host) };
    let who = RequestIdentity {
        principal,
        level: AuthLevel::Kerberos,
        // Not 0, which would be no ticket: a user may have been locked since.
        issued: i64::from(*issued).max(1),
        ends: Some(Timestamp::new(i64::from(*expires), 0)),
        overheard: *level != RxkadLevel::Crypt,
        host: Some(host),
        ..RequestIdentity::NOBODY
    };
    Caller { who, ..nobody(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(name: &str, instance: &str, cell: &str) -> RxCaller {
        RxCaller::Krb {
            name: name.to_owned(),
            instance: instance.to_owned(),
            cell: cell.to_owned(),
            level: RxkadLevel::Crypt,
            issued: 1,
            expires: 2,
            is_local_auth: false,
        }
    }

    #[test]
    fn a_ticket_names_one_user_or_none() {
        let names = CallerNames::new("example.org");
        let user = |name: &str| ProvedIdentity::User(name.to_owned());
        assert_eq!(names.identity_of(&RxCaller::Anybody), ProvedIdentity::Nobody);
        assert_eq!(names.identity_of(&ticket("joe", "", "EXAMPLE.ORG")), user("joe"));
        assert_eq!(names.identity_of(&ticket("joe", "", "")), user("joe"));
        assert_eq!(names.identity_of(&ticket("joe", "admin", "EXAMPLE.ORG")), user("joe/admin"));
        assert_eq!(names.identity_of(&ticket("joe", "", "OTHER.ORG")), user("joe@other.org"));
        for (name, instance) in
            [("joe.admin", ""), ("joe/admin", ""), ("joe@other.org", ""), ("", "x")]
        {
            assert_eq!(
                names.identity_of(&ticket(name, instance, "EXAMPLE.ORG")),
                ProvedIdentity::Nobody
            );
        }
        assert_eq!(names.identity_of(&ticket("joe", "a@b", "EXAMPLE.ORG")), ProvedIdentity::Nobody);
    }

    #[test]
    fn a_name_is_looked_up_once() {
        let names = CallerNames::new("example.org");
        let joe = PrincipalId(17);
        assert_eq!(names.number_of("joe", || Ok::<_, ()>(joe)), Ok(joe));
        assert_eq!(names.number_of("joe", || Err(())), Ok(joe));
        assert_eq!(names.number_of("jim", || Err(())), Err(()));
    }
}
