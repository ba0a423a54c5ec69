//! Reading mount points. The server does not follow mount points; clients do, in
//! [`crate::Volumes`].

use types::{Fault, Fid, MountPoint};

use crate::base::{Error, RequestContext};
use crate::ops::Venus;

impl Venus {
    /// The content of the mount point `fid`.
    ///
    /// # Errors
    /// The service's refusal; `Damaged` if it cannot be read.
    pub fn mount_point(&self, request: &RequestContext<'_>, fid: Fid) -> Result<MountPoint, Error> {
        let target = self.readlink(request, fid)?;
        MountPoint::parse(&target).map_err(|_| Fault::Damaged.into())
    }
}
