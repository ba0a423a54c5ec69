//! The rights of this machine's users in a volume where access lists decide.
//!
//! Rights belong to a directory and to those files in it that have no list of their own, as their
//! status says. The client asks once for each directory and user. The answer holds while the
//! directory's status holds and the server has not broken its promise about rights in the volume
//! ([`Fid::rights`]). The server breaks it when any list changes, when anything moves to another
//! directory, and when a principal joins or leaves a group. Then the client forgets all rights, and
//! the kernel the permissions that it derived from them.

use std::sync::Arc;

use guard::{Acl, Rights};
use types::posix::SET_IDS;
use types::{Answer, AuthCall, Call, Caller, Fid, PrincipalId, PtsCall, Status};

use crate::base::{Error, RequestContext, Stamp};
use crate::calls::Calls;
use crate::names::Identity;
use crate::session::Ground;

/// Rights, access lists and identities in a volume.
pub struct AccessRights {
    ground: Ground,
    identity: Arc<Identity>,
    calls: Arc<Calls>,
}

impl AccessRights {
    pub(crate) fn new(ground: &Ground, identity: &Arc<Identity>, calls: &Arc<Calls>) -> Self {
        AccessRights {
            ground: ground.clone(),
            identity: Arc::clone(identity),
            calls: Arc::clone(calls),
        }
    }

    /// Whether the file is known to have set-id bits, which a write of most users drops.
    pub fn has_set_ids(&self, fid: Fid) -> bool {
        let tables = self.ground.names.lock();
        let status = tables.nodes.get(&fid).and_then(|node| node.status);
        status.is_some_and(|status| status.mode & SET_IDS != 0)
    }

    /// The caller's rights on a file or directory, and when they were valid.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rights(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(Rights, Stamp), Error> {
        let uid = request.caller.uid;
        let (snapshot, stamp, logins) = {
            let tables = self.ground.names.lock();
            let known = tables.rights.of(fid, uid).filter(|_| tables.trusted());
            if let Some(rights) = known {
                return Ok((rights, self.ground.names.stamp()));
            }
            (tables.holder.begin(), self.ground.names.stamp(), tables.rights.logins)
        };
        let Answer::Rights { of, rights } = self.calls.call(request, Call::Rights { fid })? else {
            return Err(Error::Protocol);
        };
        let rights = Rights(rights);
        let mut tables = self.ground.names.lock();
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

    /// A file with one name was just found in `dir`, by an answer with this stamp.
    pub fn ruled_by(&self, status: &Status, dir: Fid, stamp: Stamp) {
        let (fid, by) = (status.fid, if status.own_list { status.fid } else { dir });
        let mut tables = self.ground.names.lock();
        if self.ground.names.stamp() == stamp {
            tables.rights.rule(fid, by);
        }
    }

    /// A call that shows the caller's identity or changes a password.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn auth(&self, request: &RequestContext<'_>, call: AuthCall) -> Result<Answer, Error> {
        self.calls.call(request, Call::Auth { behalf: None, call: Box::new(call) })
    }

    /// Forgets all rights, here and in the kernel; they are asked for anew.
    pub fn forget_rights(&self) {
        self.ground.names.lock().rights.on_login();
        self.ground.names.advance_gate();
        self.ground.kernel.port().rights();
    }

    /// The users whose rights on `fid` are known here, with these rights.
    pub fn known_rights(&self, fid: Fid) -> Vec<(u32, Rights)> {
        let tables = self.ground.names.lock();
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
        let Answer::Names { names, .. } = self.calls.call(request, call)? else {
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
        match self.calls.call(request, Call::GetAcl { fid })? {
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
        let _away = self.ground.names.away(&mut call);
        match self.calls.call(request, call)? {
            Answer::Done => Ok(()),
            _ => Err(Error::Protocol),
        }
    }

    /// Asks a server for the effective identity of a caller that has presented a token; returns
    /// whether it changed.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn learn_ids(&self, request: &RequestContext<'_>) -> Result<bool, Error> {
        match self.calls.call(request, Call::ServerReport)? {
            Answer::Report(report) => Ok(self.identity.learn(request.caller.uid, &report)),
            _ => Err(Error::Protocol),
        }
    }
}

/// A caller for another user of this machine than the one that made the request.
pub fn somebody(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Box::default()), who: types::RequestIdentity::NAMED }
}
