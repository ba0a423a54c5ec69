//! Extended attributes. The cache answers while the promise of the file holds.

use std::sync::Arc;

use bytes::Bytes;
use types::{Answer, Call, Fault, Fid, XattrMode};

use crate::base::{Error, RequestContext};
use crate::calls::Calls;
use crate::session::Ground;
use crate::writeback::Writeback;

/// Longer attribute values are not cached.
const XATTR_KEPT_BYTES_MAX: usize = 4096;

/// A write removes file capabilities without a report to the client: they are not cached.
const CAPABILITY: &[u8] = b"security.capability";

/// Attributes that are cached of one file.
const XATTRS_KEPT_MAX: usize = 32;

/// Extended attributes of files.
pub struct Xattrs {
    ground: Ground,
    calls: Arc<Calls>,
    writeback: Arc<Writeback>,
}

impl Xattrs {
    pub(crate) fn new(ground: &Ground, calls: &Arc<Calls>, writeback: &Arc<Writeback>) -> Self {
        Xattrs {
            ground: ground.clone(),
            calls: Arc::clone(calls),
            writeback: Arc::clone(writeback),
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Fault::NoXattr`] if there is none; the service's refusal.
    pub fn getxattr(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        name: &[u8],
    ) -> Result<Bytes, Error> {
        let snapshot = {
            let mut tables = self.ground.names.lock();
            let known = tables.status(fid).and_then(|_| tables.nodes.get(&fid)?.xattr(name));
            match known {
                Some(Some(value)) => return Ok(value),
                Some(None) => return Err(Fault::NoXattr.into()),
                None => tables.holder.begin(),
            }
        };
        let name = Bytes::copy_from_slice(name);
        let value = match self.calls.call(request, Call::XattrGet { fid, name: name.clone() }) {
            Ok(Answer::Xattr(value)) => Some(value),
            Ok(_) => return Err(Error::Protocol),
            Err(Error::Fault(Fault::NoXattr)) => None,
            Err(error) => return Err(error),
        };
        let mut tables = self.ground.names.lock();
        if tables.holder.promised(fid, snapshot) && tables.nodes.node(fid).valid {
            let known = tables.nodes.node(fid).xattrs.get_or_insert_default();
            let keeps = |value: &Bytes| value.len() <= XATTR_KEPT_BYTES_MAX && *name != *CAPABILITY;
            if known.len() < XATTRS_KEPT_MAX && value.as_ref().is_none_or(keeps) {
                known.insert(name, value.clone());
            }
        }
        value.ok_or(Error::Fault(Fault::NoXattr))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn setxattr(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), Error> {
        self.change_xattr(
            request,
            fid,
            Call::XattrSet { fid, name: Bytes::copy_from_slice(name), value, mode },
        )
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn listxattr(&self, request: &RequestContext<'_>, fid: Fid) -> Result<Vec<Bytes>, Error> {
        match self.calls.call(request, Call::XattrList { fid })? {
            Answer::XattrNames(names) => Ok(names),
            _ => Err(Error::Protocol),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Fault::NoXattr`] if there is none; the service's refusal.
    pub fn removexattr(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        name: &[u8],
    ) -> Result<(), Error> {
        self.change_xattr(
            request,
            fid,
            Call::XattrRemove { fid, name: Bytes::copy_from_slice(name) },
        )
    }

    fn change_xattr(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        call: Call,
    ) -> Result<(), Error> {
        // Earlier writes must not remove the capabilities that are set now.
        if let Some(file) = self.ground.names.file_of(fid) {
            self.writeback.send_all(&file, request.cancel)?;
        }
        // Before the call, so that an answer from in between is not cached; and after it, for one
        // that was entered in between.
        self.ground.names.lock().nodes.node(fid).forget_xattrs();
        let changed = self.calls.status_by(request, call);
        let mut tables = self.ground.names.lock();
        tables.nodes.node(fid).forget_xattrs();
        changed.map(drop)
    }
}
