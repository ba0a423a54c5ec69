//! The rights of this machine's users in a volume where access lists decide.
//!
//! Rights belong to a directory and to those files in it that have no list of their own, as their
//! status says. The client asks once for each directory and user. The answer holds while the
//! directory's status holds and the server has not broken its promise about rights in the volume
//! ([`Fid::rights`]). The server breaks it when any list changes, when anything moves to another
//! directory, and when a principal joins or leaves a group. Then the client forgets all rights, and
//! the kernel the permissions that it derived from them.

use std::sync::Arc;

use guard::Rights;
use types::{Answer, Call, Fid};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::Stamp;
use crate::session::ground::Ground;
use crate::writeback::calls::Calls;

/// Asks for rights, and remembers them.
pub(crate) struct RightsCache {
    ground: Ground,
    calls: Arc<Calls>,
}

impl RightsCache {
    pub fn new(ground: &Ground, calls: &Arc<Calls>) -> Self {
        RightsCache { ground: ground.clone(), calls: Arc::clone(calls) }
    }

    pub(crate) fn rights(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
    ) -> Result<(Rights, Stamp), Error> {
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
}
