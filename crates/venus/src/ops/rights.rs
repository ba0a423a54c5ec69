//! The rights of this machine's users in a volume where access lists decide.
//!
//! Rights belong to a directory and to those files in it that have no list of their own, as their
//! status says. The client asks once for each directory and user. The answer holds while the
//! directory's status holds and the server has not broken its promise about rights in the volume
//! ([`Fid::rights`]). The server breaks it when any list changes, when anything moves to another
//! directory, and when a principal joins or leaves a group. Then the client forgets all rights, and
//! the kernel the permissions that it derived from them.

use guard::{Acl, Rights};
use types::{Answer, AuthCall, Call, Caller, Fid, PrincipalId, PtsCall, Status};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::Stamp;
use crate::ops::venus::Venus;

/// A caller for another user of this machine than the one that made the request.
pub fn somebody(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Box::default()), who: types::RequestIdentity::NAMED }
}

impl Venus {
    /// The caller's rights on a file or directory, and when they were valid.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn rights(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(Rights, Stamp), Error> {
        self.core.rights.rights(request, fid)
    }

    /// A file with one name was just found in `dir`, by an answer with this stamp.
    pub fn ruled_by(&self, status: &Status, dir: Fid, stamp: Stamp) {
        let (fid, by) = (status.fid, if status.own_list { status.fid } else { dir });
        let mut tables = self.core.ground.names.lock();
        if self.core.ground.names.stamp() == stamp {
            tables.rights.rule(fid, by);
        }
    }

    /// A call that shows the caller's identity or changes a password.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn auth(&self, request: &RequestContext<'_>, call: AuthCall) -> Result<Answer, Error> {
        self.core.calls.call(request, Call::Auth { behalf: None, call: Box::new(call) })
    }

    /// Forgets all rights, here and in the kernel; they are asked for anew.
    pub fn forget_rights(&self) {
        self.core.ground.names.lock().rights.on_login();
        self.core.ground.names.advance_gate();
        self.core.ground.kernel.port().rights();
    }

    /// The users whose rights on `fid` are known here, with these rights.
    pub fn known_rights(&self, fid: Fid) -> Vec<(u32, Rights)> {
        let tables = self.core.ground.names.lock();
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
        let Answer::Names { names, .. } = self.core.calls.call(request, call)? else {
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
        match self.core.calls.call(request, Call::GetAcl { fid })? {
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
        let _away = self.core.ground.names.away(&mut call);
        match self.core.calls.call(request, call)? {
            Answer::Done => Ok(()),
            _ => Err(Error::Protocol),
        }
    }
}
