//! Extended attributes.

use std::io::IoSlice;

use bytes::Bytes;
use rustix::io::Errno;
use types::XattrMode;
use types::limits::XATTR_NAME_BYTES_MAX;

use crate::abi;
use crate::access_cache;
use crate::dispatch::{RequestRefusal, Task};
use crate::logins::PendingLogin;
use crate::virtual_xattrs::Virtual;

/// Flags of `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// A label of SELinux. A kernel with SELinux answers for it itself; otherwise `ls -l` requests the
/// label of every entry, unless one reply says that this file system has none.
const LABEL: &[u8] = b"security.selinux";

/// Whether it names something that volumes do not have: an access list (`system.`) or a label. The
/// same for reading and setting, so that no value is stored that cannot be read.
fn is_unsupported(name: &[u8]) -> bool {
    name.starts_with(b"system.") || name == LABEL
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
    pub(crate) fn setxattr(
        &self,
        of: &abi::SetxattrIn,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), RequestRefusal> {
        if let Some(wanted) = PendingLogin::of(name) {
            return self.set_login(wanted, value);
        }
        if let Some(wanted) = Virtual::of(name) {
            return self.set_virtual(wanted?, value);
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
        self.done();
        Ok(())
    }

    pub(crate) fn getxattr(&self, size: u32, name: &[u8]) -> Result<(), RequestRefusal> {
        if self.on.agreement.is_shared() && name.starts_with(access_cache::PREFIX) {
            return self.get_permits(size, name);
        }
        if let Some(wanted) = PendingLogin::of(name) {
            let value = self.login_value(wanted)?;
            return self.sized(size, &value);
        }
        if let Some(wanted) = Virtual::of(name) {
            let value = self.virtual_value(wanted?)?;
            return self.sized(size, &value);
        }
        check_name(name)?;
        let value = self.venus().xattrs().getxattr(&self.request(), self.fid()?, name)?;
        self.sized(size, &value)
    }

    pub(crate) fn listxattr(&self, size: u32) -> Result<(), RequestRefusal> {
        let names = self.venus().xattrs().listxattr(&self.request(), self.fid()?)?;
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        self.sized(size, &list)
    }

    pub(crate) fn removexattr(&self, name: &[u8]) -> Result<(), RequestRefusal> {
        if let Some(wanted) = Virtual::of(name) {
            return self.remove_virtual(wanted?);
        }
        check_name(name)?;
        self.venus().xattrs().removexattr(&self.request(), self.fid()?, name)?;
        self.done();
        Ok(())
    }

    /// With `size` 0 only the length is requested.
    pub(crate) fn sized(&self, size: u32, value: &[u8]) -> Result<(), RequestRefusal> {
        if size == 0 {
            let _ = self.value(&abi::GetxattrOut { size: value.len() as u32, padding: 0 });
        } else if value.len() > size as usize {
            return Err(RequestRefusal(Errno::RANGE));
        } else {
            let _ = self.parts(&[IoSlice::new(value)]);
        }
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
        for name in
            [&b"security.capability"[..], b"user.selinux", b"security.selinux2", b"trusted.x"]
        {
            assert!(check_name(name).is_ok());
        }
    }
}
