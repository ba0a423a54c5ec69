//! Extended attributes.

use bytes::Bytes;
use rustix::io::Errno;
use types::limits::XATTR_NAME_BYTES_MAX;
use types::{StatusChange, XattrMode};

use crate::abi;
use crate::access_cache;
use crate::errno::RequestRefusal;
use crate::logins::{LoginDesk, PendingLogin};
use crate::task::Task;
use crate::virtual_xattrs::{Virtual, VirtualXattrs};

/// Flags of `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// A label of SELinux. A kernel with SELinux answers for it itself; otherwise `ls -l` requests the
/// label of every entry, unless one reply says that this file system has none.
const LABEL: &[u8] = b"security.selinux";

/// The privileges that a file gives to its program, until its data is changed.
const CAPABILITY: &[u8] = b"security.capability";

/// Whether it names something that volumes do not have: an access list (`system.`) or a label. The
/// same for reading and setting, so that no value is stored that cannot be read.
fn is_unsupported(name: &[u8]) -> bool {
    name.starts_with(b"system.") || name == LABEL
}

/// Whether it is an attribute by which this client tells of a file and its volume.
pub(crate) fn is_virtual(name: &[u8]) -> bool {
    PendingLogin::of(name).is_some() || Virtual::of(name).is_some()
}

fn check_name(name: &[u8]) -> Result<(), RequestRefusal> {
    if is_unsupported(name) {
        return Err(RequestRefusal(Errno::OPNOTSUPP));
    }
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX {
        return Err(RequestRefusal(Errno::RANGE));
    }
    Ok(())
}

impl Task<'_> {
    fn logins(&self) -> LoginDesk<'_> {
        LoginDesk {
            venus: self.venus(),
            volumes: &self.on.volumes,
            request: self.request(),
            pid: self.header.pid,
        }
    }

    fn virtuals(&self) -> Result<VirtualXattrs<'_>, RequestRefusal> {
        Ok(VirtualXattrs {
            on: self.on,
            mount: self.mount,
            request: self.request(),
            fid: self.fid()?,
            read_only: self.prefers_read_only(),
        })
    }

    pub(crate) fn setxattr(
        &self,
        of: &abi::SetxattrIn,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), RequestRefusal> {
        if let Some(wanted) = PendingLogin::of(name) {
            self.logins().set(wanted, value)?;
            self.reply.done();
            return Ok(());
        }
        if let Some(wanted) = Virtual::of(name) {
            self.virtuals()?.set(wanted?, value)?;
            self.reply.done();
            return Ok(());
        }
        check_name(name)?;
        let mode = match of.flags {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(RequestRefusal(Errno::INVAL)),
        };
        self.venus().xattrs().setxattr(
            &self.request(),
            self.fid()?,
            name,
            Bytes::copy_from_slice(value),
            mode,
        )?;
        self.reply.done();
        Ok(())
    }

    pub(crate) fn getxattr(&self, size: u32, name: &[u8]) -> Result<(), RequestRefusal> {
        if self.mount.agreement.is_shared() && name.starts_with(access_cache::PREFIX) {
            return self.access().get_permits(self.reply, self.fid()?, size, name);
        }
        if let Some(wanted) = PendingLogin::of(name) {
            let value = self.logins().value(wanted)?;
            return self.reply.sized(size, &value);
        }
        if let Some(wanted) = Virtual::of(name) {
            let value = self.virtuals()?.value(wanted?)?;
            return self.reply.sized(size, &value);
        }
        check_name(name)?;
        let value = self.venus().xattrs().getxattr(&self.request(), self.fid()?, name)?;
        self.reply.sized(size, &value)
    }

    pub(crate) fn listxattr(&self, size: u32) -> Result<(), RequestRefusal> {
        let names = self.venus().xattrs().listxattr(&self.request(), self.fid()?)?;
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        self.reply.sized(size, &list)
    }

    pub(crate) fn removexattr(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        if let Some(wanted) = Virtual::of(name) {
            self.virtuals()?.remove(wanted?)?;
            self.reply.done();
            return Ok(());
        }
        check_name(name)?;
        let (request, fid) = (self.request(), self.fid()?);
        if name == CAPABILITY && !request.caller.is_root() {
            // The kernel lets no other user remove it: this one is about to change the data.
            let kill = StatusChange { kill_privileges: true, ..StatusChange::default() };
            self.venus().setattr(&request, fid, kill)?;
        } else {
            self.venus().xattrs().removexattr(&request, fid, name)?;
        }
        self.reply.done();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_posix_acls_are_unsupported() {
        for name in
            [&b"security.selinux"[..], b"system.posix_acl_access", b"system.posix_acl_default"]
        {
            assert_eq!(check_name(name).unwrap_err().0, Errno::OPNOTSUPP);
        }
        for name in [CAPABILITY, b"user.selinux", b"security.selinux2", b"trusted.x"] {
            assert!(check_name(name).is_ok());
        }
    }
}
