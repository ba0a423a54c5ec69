//! Whose request it is: the principal, and everything that it is (its CPS), remembered for as long
//! as nothing changes.
//!
//! Model. The cell's database counts its changes. What is remembered here is true as of the
//! revision `known`. Whoever asks compares that with the last revision that this server was told
//! of, which costs one load; if they differ, the changes between them say whose CPS may be another
//! one, and those are forgotten. A change names one principal *x*, and is about everybody who is
//! *x*, or is in *x*: those whose CPS has *x*. So a change that was acknowledged is in force with
//! the next request (AC-12). A CPS that was computed as of an older revision than `known` is used
//! once and not kept.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use celldb::{Access, CellError};
use guard::Cps;
use parking_lot::RwLock;
use types::limits::GROUPS_MAX;
use types::{
    AuthLevel, Caller, Changed, Fault, Principal, PrincipalId, Revision, Time, Timestamp,
    WhichPrincipal,
};

use crate::principal_lookups::may_ask;
use crate::{Effect, Vice};

mod stored;

/// Whom mode bits take for anybody.
const NOBODY_ID: u32 = 65534;
/// Those remembered at most. All are forgotten then: who still asks comes back.
const REMEMBERED_MAX: usize = 1 << 16;

/// Before this server was told anything: the others do not know yet that it listens, so nothing is
/// remembered.
const UNTOLD: Revision = Revision(0);

/// Who asks, as far as the CPS depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: PrincipalId,
    level: AuthLevel,
    superuser: bool,
    host: Option<IpAddr>,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct IdentityCache {
    remembered: RwLock<Remembered>,
}

#[derive(Default)]
struct Remembered {
    known: Revision,
    /// Counts what was learnt and forgotten, so that the file is written when there is something
    /// new.
    changes: u64,
    subdomains: HashMap<Key, Cps>,
    /// Of uids that trusted connections speak of.
    uids: HashMap<u32, PrincipalId>,
    /// Of those who come with tokens; `None`: nobody has that number.
    holders: HashMap<PrincipalId, Option<Arc<Holder>>>,
}

/// Who holds a token, as his record says, and those of his groups.
struct Holder {
    uid: u32,
    gid: u32,
    /// Gids of the groups that he is in and that have one.
    groups: Box<[u32]>,
    /// He, and everything that he is in.
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

    /// Goes on to revision `at`.
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

/// A thread of requests does not ask another server.
fn need_asking(access: &dyn Access) -> Result<(), CellError> {
    if !access.is_elsewhere() || may_ask() { Ok(()) } else { Err(CellError::Away(Fault::CellAway)) }
}

impl IdentityCache {
    /// Whether what is remembered is too old to be believed: this server has not heard from the
    /// database for longer than the cell's administrator allows.
    fn is_stale(&self, access: &dyn Access) -> bool {
        access.is_elsewhere() && access.is_stale()
    }

    /// What was told of since is in force.
    fn refresh(&self, access: &dyn Access) {
        let latest = access.latest();
        // What was kept from an earlier life is believed until this one is told more.
        if latest == self.remembered.read().known || latest == UNTOLD && access.is_elsewhere() {
            return;
        }
        let mut remembered = self.remembered.write();
        match access.news(remembered.known) {
            Ok((at, changes)) if at > remembered.known => remembered.go_on(at, changes.as_deref()),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "what changed among principals is not known");
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
        if remembered.known == known && known != UNTOLD {
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
        if remembered.known == known && known != UNTOLD {
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
        if at >= remembered.known && remembered.known != UNTOLD {
            if remembered.subdomains.len() >= REMEMBERED_MAX {
                remembered.subdomains.clear();
            }
            remembered.subdomains.insert(key, cps.clone());
            remembered.changes += 1;
        }
        Ok(cps)
    }
}

impl Vice {
    /// Asks whether anybody's groups have changed, where another server knows. Several times a
    /// second, in a thread that may wait. To ask is to say that all that was heard before is in
    /// force: so nothing is asked before every client that was told what it may do has heard that
    /// this is another.
    pub fn hear_news(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) {
        let Ok(Some(db)) = self.cell() else { return };
        // What was new is in force after one more turn, and who waits for it hears it at once.
        while self.enforce_rules(now, wall, out) && self.core.lock().rights_ticket.is_none() {
            let before = db.access().latest();
            db.access().listen(self.me().id);
            if db.access().latest() == before {
                return;
            }
            let nothing =
                |(_, changes): celldb::News| changes.is_some_and(|changes| changes.is_empty());
            if !db.access().news(before).is_ok_and(nothing) {
                let mut events = Vec::new();
                let mut core = self.core.lock();
                core.rights_ticket = core.break_rights(now, &mut events);
                drop(core);
                self.settle(now, events, out);
            }
        }
    }

    /// Puts the rules into force that this server was told of: sessions of fenced callers, and of
    /// servers whose keys are listed no more, end. False: calls that began before are not done yet.
    pub fn enforce_rules(&self, now: Time, wall: Timestamp, out: &mut Vec<Effect>) -> bool {
        let mut events = Vec::new();
        let enforced = self.enforce(now, wall, &mut events);
        self.settle(now, events, out);
        enforced
    }

    /// Who comes with a token is, to mode bits, the user and group that his principal's record
    /// says, and in the groups whose records have a gid. Others are who they are.
    ///
    /// # Errors
    /// `TokenRefused`: the token was revoked, or its holder is locked or gone; `CellAway`,
    /// `Medium`.
    pub(crate) fn settled<'c>(&self, caller: &'c Caller) -> Result<Cow<'c, Caller>, Fault> {
        if !caller.who.level.is_of_tokens() || caller.who.token == 0 {
            return Ok(Cow::Borrowed(caller));
        }
        // Its key may have been withdrawn since it was shown.
        if self.desk.get().is_some_and(|desk| !desk.believes(caller.who.key)) {
            return Err(Fault::TokenRefused);
        }
        let db = self.cell()?.ok_or(Fault::TokenRefused)?;
        self.whose.refresh(db.access());
        let holder = self.whose.holder(db.access(), caller.who.principal)?;
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

    /// Who asks, in the cell. A trusted connection names uids: those of users, and others, who are
    /// nobody.
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
        match self.cell()? {
            Some(db) => {
                self.whose.refresh(db.access());
                Ok(self.whose.with_uid(db.access(), caller.uid)?)
            }
            None => Ok(PrincipalId::ANONYMOUS),
        }
    }

    /// The principal of who asks, as other servers may take it for shown. An administrator whom a
    /// believed host names is anonymous there: an address makes nobody an administrator, and the
    /// other server does not hear how it was shown.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub(crate) fn vouched(&self, caller: &Caller) -> Result<PrincipalId, Fault> {
        let principal = self.principal_of(caller)?;
        let (AuthLevel::Host, Some(db)) = (caller.who.level, self.cell()?) else {
            return Ok(principal);
        };
        let (_, groups) = db.access().subdomain(principal, None)?;
        let appointed = groups.contains(&PrincipalId::ADMINISTRATORS);
        Ok(if appointed { PrincipalId::ANONYMOUS } else { principal })
    }

    /// Everything that who asks is. The superuser of a trusted connection is an administrator.
    /// Where it is known, nothing is allocated and nobody asked.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let superuser = caller.is_superuser();
        let power = superuser.then_some(PrincipalId::ADMINISTRATORS);
        let db = match self.cell() {
            Ok(Some(db)) => db,
            Ok(None) => return Ok(Cps::new(caller.who.principal, caller.who.level, power)),
            // The superuser of a server rules there, whatever becomes of the cell.
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
        self.whose.refresh(db.access());
        match self.whose.subdomain(db.access(), key) {
            Err(_) if superuser => Ok(Cps::new(key.principal, key.level, power)),
            found => Ok(found?),
        }
    }
}
