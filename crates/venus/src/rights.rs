//! The rights of this machine's users in a volume where access lists decide.
//!
//! Rights belong to a directory and to those files in it that have no list of their own, as their
//! status says. The client asks once for each directory and user. The answer holds while the
//! directory's status holds and the server has not broken its promise about rights in the volume
//! ([`Fid::rights`]). The server breaks it when any list changes, when anything moves to another
//! directory, and when a principal joins or leaves a group. Then the client forgets all rights, and
//! the kernel the permissions that it derived from them.

use std::collections::HashMap;

use guard::{Acl, Rights};
use types::{Answer, AuthCall, BreakItem, Call, Caller, Fid, Kind, PrincipalId, PtsCall, Status};

use crate::core::Core;
use crate::{Error, RequestContext, Stamp, Venus};

/// Most entries of each table; beyond it the table is cleared and rights are asked for anew.
const KNOWN_MAX: usize = 1 << 16;

/// See the head of the file. Under the lock of the tables.
#[derive(Default)]
pub(crate) struct KnownRights {
    rights: HashMap<Fid, Vec<(u32, Rights)>>,
    /// For each file without a list of its own, the directory whose list decides.
    ruled: HashMap<Fid, Fid>,
    /// Counts changes of a local user's identity in the cell.
    logins: u64,
}

impl KnownRights {
    pub fn on_break(&mut self, items: &[BreakItem]) {
        if items.iter().any(|item| item.fid == Fid::rights(item.fid.volume)) {
            self.clear();
        }
        for item in items {
            self.rights.remove(&item.fid);
            self.ruled.remove(&item.fid);
        }
    }

    pub fn clear(&mut self) {
        self.rights.clear();
        self.ruled.clear();
    }

    /// A local user's identity in the cell changed.
    fn on_login(&mut self) {
        self.logins += 1;
        self.clear();
    }

    fn ruler(&self, fid: Fid) -> Option<Fid> {
        if fid.vnode.is_directory() { Some(fid) } else { self.ruled.get(&fid).copied() }
    }

    pub fn of(&self, fid: Fid, uid: u32) -> Option<Rights> {
        let known = self.rights.get(&self.ruler(fid)?)?;
        known.iter().find(|(of, _)| *of == uid).map(|(_, rights)| *rights)
    }

    fn insert(&mut self, dir: Fid, uid: u32, rights: Rights) {
        if self.rights.len() >= KNOWN_MAX {
            self.rights.clear();
        }
        let known = self.rights.entry(dir).or_default();
        known.retain(|(of, _)| *of != uid);
        known.push((uid, rights));
    }

    /// Something was made in `dir`. The list of `dir` decides for it, or its own list is a copy of
    /// that: so its maker has the same rights there as in `dir`. As its owner the maker has no
    /// fewer.
    pub fn made_in(&mut self, dir: Fid, made: &Status, uid: u32) {
        if made.kind != Kind::Directory {
            self.rule(made.fid, dir);
        } else if let Some(rights) = self.of(dir, uid) {
            self.insert(made.fid, uid, rights);
        }
    }

    fn rule(&mut self, fid: Fid, by: Fid) {
        if self.ruled.len() >= KNOWN_MAX {
            self.ruled.clear();
        }
        self.ruled.insert(fid, by);
    }
}

impl Venus {
    /// The caller's rights on a file or directory, and when they were valid.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rights(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(Rights, Stamp), Error> {
        self.core.rights(request, fid)
    }

    /// A file with one name was just found in `dir`, by an answer with this stamp.
    pub fn ruled_by(&self, status: &Status, dir: Fid, stamp: Stamp) {
        let (fid, by) = (status.fid, if status.own_list { status.fid } else { dir });
        let mut tables = self.core.tables.lock();
        if self.core.stamp() == stamp {
            tables.rights.rule(fid, by);
        }
    }

    /// A call that shows the caller's identity or changes a password.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn auth(&self, request: &RequestContext<'_>, call: AuthCall) -> Result<Answer, Error> {
        self.core.call(request, Call::Auth { behalf: None, call: Box::new(call) })
    }

    /// Forgets all rights, here and in the kernel; they are asked for anew.
    pub fn forget_rights(&self) {
        self.core.tables.lock().rights.on_login();
        *self.core.gate.write() += 1;
        self.core.invalidator().rights();
    }

    /// The users whose rights on `fid` are known here, with these rights.
    pub fn known_rights(&self, fid: Fid) -> Vec<(u32, Rights)> {
        let tables = self.core.tables.lock();
        let ruler = tables.rights.ruler(fid).filter(|_| tables.trusted());
        ruler.and_then(|dir| tables.rights.rights.get(&dir).cloned()).unwrap_or_default()
    }

    /// The number of the user or group with this name, or the name of the one with this number;
    /// `None`: there is none.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn who(&self, request: &RequestContext<'_>, who: &str) -> Result<Option<String>, Error> {
        let number = who.parse().ok().map(PrincipalId);
        let call = match number {
            Some(id) => PtsCall::Names { ids: vec![id] },
            None => PtsCall::Numbers { names: vec![who.to_owned()] },
        };
        let call = Call::Pts { on_behalf: None, call: Box::new(call) };
        let Answer::Names { names, .. } = self.core.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let found = names
            .into_iter()
            .next()
            .filter(|(id, name)| *id != PrincipalId::NONE && !name.is_empty());
        Ok(found.map(|(id, name)| if number.is_some() { name } else { id.to_string() }))
    }

    /// The list that decides for a file or directory, and the fid that has it.
    ///
    /// # Errors
    /// `Unsupported` where mode bits decide; the service's refusal.
    pub fn acl(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(Fid, Acl), Error> {
        match self.core.call(request, Call::GetAcl { fid })? {
            Answer::Acl { of, list } => Ok((of, Acl::decode(&list).map_err(|_| Error::Protocol)?)),
            _ => Err(Error::Protocol),
        }
    }

    /// Sets the access list of a directory or file, or removes it; `instead_of`: only while the
    /// list with this sum decides.
    ///
    /// # Errors
    /// `Conflict`: another list decides; the service's refusal.
    pub fn set_acl(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        list: Option<&Acl>,
        instead_of: Option<[u8; 32]>,
    ) -> Result<(), Error> {
        let list = list.map(|list| list.encode().into());
        let mut call = Call::SetAcl { fid, list, instead_of };
        let _away = self.core.away(&mut call);
        match self.core.call(request, call)? {
            Answer::Done => Ok(()),
            _ => Err(Error::Protocol),
        }
    }
}

impl Core {
    pub(crate) fn rights(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
    ) -> Result<(Rights, Stamp), Error> {
        let uid = request.caller.uid;
        let (snapshot, stamp, logins) = {
            let tables = self.tables.lock();
            let known = tables.rights.of(fid, uid).filter(|_| tables.trusted());
            if let Some(rights) = known {
                return Ok((rights, self.stamp()));
            }
            (tables.holder.begin(), self.stamp(), tables.rights.logins)
        };
        let Answer::Rights { of, rights } = self.call(request, Call::Rights { fid })? else {
            return Err(Error::Protocol);
        };
        let rights = Rights(rights);
        let mut tables = self.tables.lock();
        let holds = |fid: Fid| tables.holder.promised(fid, snapshot);
        // A login or logout in between: the server judged the user by another identity.
        let same = tables.rights.logins == logins;
        if same && holds(Fid::rights(fid.volume)) && holds(fid) && holds(of) {
            if !fid.vnode.is_directory() {
                tables.rights.rule(fid, of);
            }
            tables.rights.insert(of, uid, rights);
        }
        Ok((rights, stamp))
    }
}

/// A caller for another user of this machine than the one that made the request.
pub fn somebody(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Box::default()), who: types::RequestIdentity::NAMED }
}
