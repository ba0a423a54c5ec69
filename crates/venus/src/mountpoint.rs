//! What a mount point says. The server does not follow mount points; clients do, and
//! [`crate::Volumes`] is where.

use types::{Fault, Fid, MountPoint};

use crate::{Error, RequestContext, Venus};

impl Venus {
    /// What the mount point `fid` says.
    ///
    /// # Errors
    /// As the service says; `Damaged` if it cannot be read.
    pub fn mount_point(&self, request: &RequestContext<'_>, fid: Fid) -> Result<MountPoint, Error> {
        let target = self.readlink(request, fid)?;
        MountPoint::parse(&target).map_err(|_| Fault::Damaged.into())
    }
}
