//! The principals of callers, with everything that each is in (its CPS), cached until they change.
//!
//! Model. The cell's database counts its changes. The cache is true as of the revision `known`.
//! Each look-up compares that with the last revision that this server received, which costs one
//! load; if they differ, the changes in between determine which CPSs to drop. A change names one
//! principal *x*, and affects all that are *x*, or are in *x*: those whose CPS contains *x*. So an
//! acknowledged change is in force with the next request (AC-12). A CPS that was computed as of an
//! older revision than `known` is used once and not cached.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use celldb::{Access, CellError};
use guard::{Authenticator, Cps};
use parking_lot::RwLock;
use types::limits::GROUPS_MAX;
use types::{AuthLevel, Caller, Changed, Fault, Principal, PrincipalId, Revision, WhichPrincipal};

use super::lookups::may_ask;
use super::{CellLink, Principals};

mod stored;

/// The uid and gid that mode bits see for an unknown principal.
const NOBODY_ID: u32 = 65534;
/// Maximum number of cached CPSs. The whole cache is then emptied: active callers are looked up
/// again.
const REMEMBERED_MAX: usize = 1 << 16;

/// Before the first news: the other server does not know yet that this one listens, so nothing is
/// cached.
const NO_NEWS: Revision = Revision(0);

/// The parts of a caller that its CPS depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: PrincipalId,
    level: AuthLevel,
    superuser: bool,
    host: Option<IpAddr>,
}

/// The cache; see the head of the file.
#[derive(Default)]
struct IdentityCache {
    remembered: RwLock<Remembered>,
}

#[derive(Default)]
struct Remembered {
    known: Revision,
    /// Counts the changes of the cache, so that the file is written only after a change.
    changes: u64,
    subdomains: HashMap<Key, Cps>,
    /// Principals of uids that trusted hosts name.
    uids: HashMap<u32, PrincipalId>,
    /// Holders of tokens; `None`: no principal has that number.
    holders: HashMap<PrincipalId, Option<Arc<Holder>>>,
}

/// The holder of a token, as its record and those of its groups say.
struct Holder {
    uid: u32,
    gid: u32,
    /// Gids of its groups that have one.
    groups: Box<[u32]>,
    /// The principal, and everything that it is in.
    all: Vec<PrincipalId>,
    tokens_after: i64,
    locked: bool,
}

impl Holder {
    fn of(access: &dyn Access, principal: &Principal) -> Result<Holder, CellError> {
        let (_, mut all) = access.subdomain(principal.id, None)?;
        let mut groups = Vec::new();
        for group in all.iter().filter(|group| !guard::is_system(**group)) {
            let found = access.principal(&WhichPrincipal::Id(*group))?;
            groups.extend(found.filter(|found| found.id.is_group()).and_then(|found| found.gid));
        }
        groups.truncate(GROUPS_MAX);
        all.push(principal.id);
        let own = types::own_id(principal.id).unwrap_or(NOBODY_ID);
        let uid = principal.uid.unwrap_or(own);
        let Principal { gid, tokens_after, locked, .. } = *principal;
        Ok(Holder {
            uid,
            gid: gid.unwrap_or(own),
            groups: groups.into(),
            all,
            tokens_after,
            locked,
        })
    }
}

impl Remembered {
    fn forget_all(&mut self) {
        self.holders.clear();
        self.subdomains.clear();
        self.uids.clear();
    }

    /// Advances the cache to revision `at`.
    fn go_on(&mut self, at: Revision, changes: Option<&[(Revision, Changed)]>) {
        self.known = at;
        self.changes += 1;
        let Some(changes) = changes else { return self.forget_all() };
        let mut whom = Vec::new();
        for (_, changed) in changes {
            match changed {
                Changed::Group(_) | Changed::Server(_) | Changed::Rules => {}
                Changed::Principal(id) => whom.push(*id),
                Changed::Principals => return self.forget_all(),
            }
        }
        if !whom.is_empty() {
            self.uids.clear();
            self.holders.retain(|id, holder| {
                let all = holder.as_ref().map_or(&[][..], |holder| &holder.all);
                !whom.iter().any(|changed| changed == id || all.contains(changed))
            });
            self.subdomains.retain(|_, cps| !whom.iter().any(|id| cps.has(*id)));
        }
    }
}

/// Refuses to ask another server from a thread of requests.
fn need_asking(access: &dyn Access) -> Result<(), CellError> {
    if !access.is_elsewhere() || may_ask() { Ok(()) } else { Err(CellError::Away(Fault::CellAway)) }
}

impl IdentityCache {
    /// Whether the cache is too old to be used: this server got no news of the database for longer
    /// than the cell's administrator allows.
    fn is_stale(&self, access: &dyn Access) -> bool {
        access.is_elsewhere() && access.is_stale()
    }

    /// Applies the changes that arrived since.
    fn refresh(&self, access: &dyn Access) {
        let latest = access.latest();
        // A cache from an earlier server instance is valid until the first news arrives.
        if latest == self.remembered.read().known || latest == NO_NEWS && access.is_elsewhere() {
            return;
        }
        let mut remembered = self.remembered.write();
        match access.news(remembered.known) {
            Ok((at, changes)) if at > remembered.known => remembered.go_on(at, changes.as_deref()),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "changes of principals are unknown; the cache is emptied");
                remembered.forget_all();
            }
        }
    }

    fn with_uid(&self, access: &dyn Access, uid: u32) -> Result<PrincipalId, CellError> {
        let stale = self.is_stale(access);
        let remembered = self.remembered.read();
        if let Some(id) = remembered.uids.get(&uid).filter(|_| !stale) {
            return Ok(*id);
        }
        let known = remembered.known;
        drop(remembered);
        need_asking(access)?;
        let found = access.principal(&WhichPrincipal::Uid(uid))?;
        let id = found.map_or(PrincipalId::ANONYMOUS, |found| found.id);
        let mut remembered = self.remembered.write();
        if remembered.known == known && known != NO_NEWS {
            if remembered.uids.len() >= REMEMBERED_MAX {
                remembered.uids.clear();
            }
            remembered.uids.insert(uid, id);
            remembered.changes += 1;
        }
        Ok(id)
    }

    fn holder(
        &self,
        access: &dyn Access,
        id: PrincipalId,
    ) -> Result<Option<Arc<Holder>>, CellError> {
        let stale = self.is_stale(access);
        let remembered = self.remembered.read();
        if let Some(holder) = remembered.holders.get(&id).filter(|_| !stale) {
            return Ok(holder.clone());
        }
        let known = remembered.known;
        drop(remembered);
        need_asking(access)?;
        let holder = access.principal(&WhichPrincipal::Id(id))?;
        let holder =
            holder.map(|principal| Holder::of(access, &principal)).transpose()?.map(Arc::new);
        let mut remembered = self.remembered.write();
        if remembered.known == known && known != NO_NEWS {
            if remembered.holders.len() >= REMEMBERED_MAX {
                remembered.holders.clear();
            }
            remembered.holders.insert(id, holder.clone());
            remembered.changes += 1;
        }
        Ok(holder)
    }

    fn subdomain(&self, access: &dyn Access, key: Key) -> Result<Cps, CellError> {
        let stale = self.is_stale(access);
        if let Some(cps) = self.remembered.read().subdomains.get(&key).filter(|_| !stale) {
            return Ok(cps.clone());
        }
        need_asking(access)?;
        let (at, groups) = access.subdomain(key.principal, key.host)?;
        let power = key.superuser.then_some(PrincipalId::ADMINISTRATORS);
        let cps = Cps::new(key.principal, key.level, groups.into_iter().chain(power));
        let mut remembered = self.remembered.write();
        if at >= remembered.known && remembered.known != NO_NEWS {
            if remembered.subdomains.len() >= REMEMBERED_MAX {
                remembered.subdomains.clear();
            }
            remembered.subdomains.insert(key, cps.clone());
            remembered.changes += 1;
        }
        Ok(cps)
    }
}

/// Callers' identities at this server.
pub struct Identities {
    cell: Arc<CellLink>,
    cache: IdentityCache,
    authenticator: Option<Arc<dyn Authenticator>>,
    /// Asked instead of the cell's database.
    instead: Option<Arc<dyn Principals>>,
}

impl Principals for Identities {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        Identities::cps(self, caller)
    }
}

impl Identities {
    /// `authenticator` knows which token keys are accepted; `instead`: a source of principals
    /// for access checks, in place of the cell's database.
    pub(crate) fn new(
        cell: Arc<CellLink>,
        authenticator: Option<Arc<dyn Authenticator>>,
        instead: Option<Arc<dyn Principals>>,
    ) -> Identities {
        Identities { cell, cache: IdentityCache::default(), authenticator, instead }
    }

    /// The source of principals for access checks.
    pub(crate) fn principals(&self) -> &dyn Principals {
        self.instead.as_ref().map_or(self, |instead| &**instead)
    }

    /// For mode bits, the holder of a token or ticket has the user and group of its principal's
    /// record, and the groups whose records have a gid. Other callers remain as they are.
    ///
    /// # Errors
    /// `TokenRefused`: the token was revoked, or its holder is locked or removed; `CellAway`,
    /// `Medium`.
    pub(crate) fn effective<'c>(&self, caller: &'c Caller) -> Result<Cow<'c, Caller>, Fault> {
        let has_token = caller.who.token != 0;
        // A client of AFS shows a ticket, which has a date and no number.
        let is_dated = has_token || caller.who.issued != 0;
        if !caller.who.level.is_of_tokens() || !is_dated {
            return Ok(Cow::Borrowed(caller));
        }
        // Its key may have been withdrawn since the token was accepted.
        if has_token
            && self.authenticator.as_ref().is_some_and(|known| !known.believes(caller.who.key))
        {
            return Err(Fault::TokenRefused);
        }
        let db = self.cell.db()?.ok_or(Fault::TokenRefused)?;
        self.cache.refresh(db.access());
        let holder = self.cache.holder(db.access(), caller.who.principal)?;
        let good =
            |holder: &Arc<Holder>| !holder.locked && caller.who.issued >= holder.tokens_after;
        let holder = holder.filter(good).ok_or(Fault::TokenRefused)?;
        let Holder { uid, gid, groups, .. } = &*holder;
        Ok(Cow::Owned(Caller {
            uid: *uid,
            gid: *gid,
            groups: Some(groups.clone()),
            who: caller.who,
        }))
    }

    /// The caller's principal in the cell. A trusted host names uids: those of users have one,
    /// others are anonymous.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub fn principal_of(&self, caller: &Caller) -> Result<PrincipalId, Fault> {
        let who = caller.who;
        if !matches!(who.level, AuthLevel::Named | AuthLevel::Attested | AuthLevel::Host)
            || who.principal != PrincipalId::ANONYMOUS
            || caller.uid == 0
        {
            return Ok(who.principal);
        }
        match self.cell.db()? {
            Some(db) => {
                self.cache.refresh(db.access());
                Ok(self.cache.with_uid(db.access(), caller.uid)?)
            }
            None => Ok(PrincipalId::ANONYMOUS),
        }
    }

    /// The caller's principal, as other servers may take it for proved. An administrator that a
    /// trusted host names is anonymous there: an address makes no caller an administrator, and the
    /// other server does not learn the authentication level.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub(crate) fn vouched(&self, caller: &Caller) -> Result<PrincipalId, Fault> {
        let principal = self.principal_of(caller)?;
        let (AuthLevel::Host, Some(db)) = (caller.who.level, self.cell.db()?) else {
            return Ok(principal);
        };
        let (_, groups) = db.access().subdomain(principal, None)?;
        let appointed = groups.contains(&PrincipalId::ADMINISTRATORS);
        Ok(if appointed { PrincipalId::ANONYMOUS } else { principal })
    }

    /// The caller's CPS. The superuser of a trusted host is an administrator. A cached CPS costs no
    /// allocation and no query.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let superuser = caller.is_superuser();
        let power = superuser.then_some(PrincipalId::ADMINISTRATORS);
        let db = match self.cell.db() {
            Ok(Some(db)) => db,
            Ok(None) => return Ok(Cps::new(caller.who.principal, caller.who.level, power)),
            // The superuser of a server has its rights there even while the cell's database is
            // away.
            Err(_) if superuser => {
                return Ok(Cps::new(caller.who.principal, caller.who.level, power));
            }
            Err(fault) => return Err(fault),
        };
        let key = Key {
            principal: self.principal_of(caller)?,
            level: caller.who.level,
            superuser,
            host: caller.who.host,
        };
        self.cache.refresh(db.access());
        match self.cache.subdomain(db.access(), key) {
            Err(_) if superuser => Ok(Cps::new(key.principal, key.level, power)),
            found => Ok(found?),
        }
    }
}
