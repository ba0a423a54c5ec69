//! Making files and opening them (`delegation/changes.rs` has the other changes of directories).

use types::{Answer, Call, CreateHow, Fid, Name, NewKind};

use super::Venus;
use crate::base::{EntryReply, Error, OpenMode, OpenReply, RequestContext};

impl Venus {
    /// Makes a plain file, or finds it unless `exclusive`, and opens it.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn create(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<(EntryReply, OpenReply), Error> {
        let how =
            if exclusive { CreateHow::Exclusive(rand::random()) } else { CreateHow::Unchecked };
        let call = Call::Make { dir, name: name.clone(), kind: NewKind::File, mode, how };
        let (entry, existed) = match self.core.changes.made(request, dir, name, call.clone()) {
            // The verifier identifies a repeated request: whether the first one was applied no
            // longer matters.
            Err(Error::Lost) => self.core.changes.made(request, dir, name, call)?,
            first => first?,
        };
        let fid = entry.status.fid;
        // A file that was just made is empty; also one that another client made a moment ago.
        let opened = if existed && !exclusive {
            self.open(request, fid, open)?
        } else {
            self.core.open_made(request, fid, open)?
        };
        Ok((entry, opened))
    }

    /// Makes and opens a file without a name; `dir` gives the volume.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn make_unnamed(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        mode: u16,
        open: OpenMode,
    ) -> Result<(EntryReply, OpenReply), Error> {
        let core = &self.core;
        let mut call = Call::MakeUnnamed { dir, mode };
        let _away = core.ground.names.away(&mut call);
        let snapshot = core.ground.names.begin();
        let Answer::Status(status) = core.calls.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let mut tables = core.ground.names.lock();
        let (shown, cacheable) = tables.put(snapshot, status);
        tables.nodes.node(status.fid).held = true;
        let entry = core.ground.names.entry(&mut tables, shown, cacheable, false);
        drop(tables);
        Ok((entry, core.open_made(request, status.fid, open)?))
    }
}
