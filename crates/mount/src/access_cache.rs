//! The rights that the kernel enforces by itself, where access lists decide.
//!
//! A mount of one user, which the kernel closes to others, shows that user's rights as mode bits
//! for all. In a shared one:
//!
//! The kernel sends no request when it answers from its caches, so it must check rights itself. It
//! knows mode bits and POSIX ACLs, and both are made here from the rights of users
//! (`venus::Venus::rights`):
//!
//! - The owner is checked by the owner's bits: they are what the owner's rights give. Others have
//!   none.
//! - Every other user is checked by an ACL, which the kernel requests (`system.posix_acl_access`)
//!   if group bits say that there may be one, and caches. It names each user whose rights are known
//!   here, including the caller, and gives nothing to all others.
//! - Before the kernel refuses a user, it forgets that ACL and requests the status and the ACL
//!   anew, in that user's name (`fuse_perm_getattr`): so no user needs to be known in advance.
//!
//! `r` and `x` of a directory are `l`; `w` is any of `i`, `d`, `w` and `a`, and the server checks
//! which of them at the change itself. `r`, `w` and `x` of a file are what its mode bits for the
//! owner and the rights `r` and `w` both give. Where rights may have changed, all this is
//! invalidated (`Notifier`, `rights`), before that is acknowledged. The kernel sends no request for
//! the superuser of the machine, which sees all that the kernel caches.

use guard::Rights;
use rustix::io::Errno;
use types::{Caller, Fid, Kind, Status};
use venus::{RequestContext, Stamp, Venus, Volumes, somebody};

use crate::errno::RequestRefusal;
use crate::replier::Replier;

/// Begins the names of POSIX ACLs.
pub(crate) const PREFIX: &[u8] = b"system.posix_acl_";
const ACCESS: &[u8] = b"system.posix_acl_access";

const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;

/// Users that an ACL names at most: the kernel reads it into one page.
const USERS_MAX: usize = 500;
/// Attempts to answer with rights that still hold. Then the caller is refused, and the kernel
/// caches nothing.
const ATTEMPTS: usize = 16;

/// The mode bits for these rights. `mode`: of the file's owner.
fn bits(rights: Rights, status: &Status, owns: bool) -> u16 {
    let bit = |granted: bool, bit| if granted { bit } else { 0 };
    if status.kind == Kind::Directory {
        let changes = [Rights::INSERT, Rights::DELETE, Rights::WRITE, Rights::ADMINISTER];
        let changes = changes.into_iter().any(|right| rights.has(right));
        return bit(rights.has(Rights::LOOKUP), READ | EXECUTE) | bit(changes, WRITE);
    }
    let reads = rights.has(Rights::READ);
    let writes = rights.has(Rights::WRITE) || owns && rights.has(Rights::INSERT);
    (bit(reads, READ | EXECUTE) | bit(writes, WRITE)) & (status.mode >> 6)
}

/// An ACL as attributes hold it. Source: Linux `uapi/linux/posix_acl_xattr.h`.
fn encode(owner: u16, mut users: Vec<(u32, u16)>) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    users.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    let mut entry = |tag: u16, bits: u16, id: u32| {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    };
    entry(0x01, owner, NOBODY);
    users.into_iter().for_each(|(uid, bits)| entry(0x02, bits, uid));
    entry(0x04, 0, NOBODY);
    entry(0x10, READ | WRITE | EXECUTE, NOBODY);
    entry(0x20, 0, NOBODY);
    bytes
}

/// The rights and mode bits that the kernel gets for the caller of a request.
pub(crate) struct KernelAccess<'a> {
    pub venus: &'a Venus,
    pub volumes: &'a Volumes,
    pub request: RequestContext<'a>,
    /// The kernel serves other users too, and checks rights itself.
    pub shared: bool,
    /// Whether device nodes have their numbers.
    pub devices: bool,
}

impl KernelAccess<'_> {
    /// The status with the mode that the kernel must check. `found`: the directory, and the time of
    /// the answer.
    pub fn permitted(&self, mut status: Status, found: Option<(Fid, Stamp)>) -> Status {
        if !self.devices {
            status.device = 0;
        }
        if !status.by_list {
            return self.venus.identity().localized(status);
        }
        if status.kind.has_target() {
            return status;
        }
        let is_directory = status.kind == Kind::Directory;
        let set_ids = if is_directory { 0 } else { status.mode & 0o6000 };
        if let Some((dir, stamp)) = found.filter(|_| !is_directory && status.links == 1) {
            self.venus.access().ruled_by(&status, dir, stamp);
        }
        if !self.shared {
            let uid = self.request.caller.uid;
            let all = self
                .rights_of(uid, status.fid)
                .map_or(0, |rights| bits(rights, &status, uid == status.uid));
            return Status { mode: set_ids | all << 6 | all << 3 | all, ..status };
        }
        let owner = if status.uid == 0 {
            // The kernel does not check the superuser's permissions.
            if is_directory { 0o7 } else { status.mode >> 6 }
        } else {
            self.rights_of(status.uid, status.fid).map_or(0, |rights| bits(rights, &status, true))
        };
        // They tell the kernel that there is an ACL.
        let group = if is_directory { 0o7 } else { (status.mode >> 6) & 0o7 };
        Status { mode: set_ids | (owner & 0o7) << 6 | group << 3, ..status }
    }

    /// Whether the kernel may check by other ids than the cell.
    pub fn is_doubted(&self) -> bool {
        self.volumes.tokens().is_some_and(|tokens| tokens.is_doubted())
    }

    /// Requires mode bits for the caller, if the kernel checks by other ids than the cell.
    pub(crate) fn need_bits(&self, fid: Fid, wanted: u16) -> Result<(), RequestRefusal> {
        if !self.is_doubted() {
            return Ok(());
        }
        let request = self.request;
        let status = self.venus.getattr(&request, fid)?.status;
        let lets = || self.venus.identity().lets(request.caller, &status, wanted);
        // Ids may be outdated, so before a refusal they are looked up again.
        if lets() || self.venus.access().learn_ids(&request)? && lets() {
            Ok(())
        } else {
            Err(RequestRefusal(Errno::ACCESS))
        }
    }

    /// `None`: the service does not answer.
    fn rights_of(&self, uid: u32, fid: Fid) -> Option<Rights> {
        let request = self.request;
        if uid == request.caller.uid {
            return self.venus.access().rights(&request, fid).ok().map(|(rights, _)| rights);
        }
        let caller: Caller = somebody(uid);
        let request = RequestContext { caller: &caller, cancel: request.cancel, groups: None };
        self.venus.access().rights(&request, fid).ok().map(|(rights, _)| rights)
    }

    /// Answers with the ACL of a file or directory; an ACL that was not asked for (of a volume with
    /// mode bits) and default ones do not exist.
    pub(crate) fn get_permits(
        &self,
        reply: Replier<'_>,
        fid: Fid,
        size: u32,
        name: &[u8],
    ) -> Result<(), RequestRefusal> {
        let request = self.request;
        for _ in 0..ATTEMPTS {
            let found = self.venus.getattr(&request, fid)?;
            let status = found.status;
            if name != ACCESS || !status.by_list || status.kind.has_target() {
                return Err(RequestRefusal(Errno::NODATA));
            }
            let asker = if request.caller.uid == 0 {
                None
            } else {
                Some(self.venus.access().rights(&request, fid)?.0)
            };
            let mut known = self.venus.access().known_rights(fid);
            known.retain(|(uid, _)| *uid != request.caller.uid && *uid != status.uid);
            known.truncate(USERS_MAX);
            known.extend(
                asker
                    .filter(|_| request.caller.uid != status.uid)
                    .map(|rights| (request.caller.uid, rights)),
            );
            let users = known
                .into_iter()
                .map(|(uid, rights)| (uid, bits(rights, &status, false)))
                .collect();
            let value = encode(self.permitted(status, None).mode >> 6 & 0o7, users);
            let sent =
                self.venus.answering(found.stamp, |still| still.then(|| reply.sized(size, &value)));
            if let Some(sent) = sent {
                return sent;
            }
        }
        Err(RequestRefusal(Errno::ACCESS))
    }
}

#[cfg(test)]
mod tests {
    use types::{DataVersion, StatusVersion};

    use super::*;

    fn status(kind: Kind, mode: u16) -> Status {
        let new = types::Timestamp::default();
        let fid = Fid::new(1, 2, 3);
        Status {
            fid,
            kind,
            mode,
            by_list: true,
            read_times: false,
            own_list: false,
            uid: 7,
            gid: 7,
            links: 1,
            size: 0,
            used: 0,
            device: 0,
            accessed: new,
            modified: new,
            changed: new,
            created: new,
            data_version: DataVersion::FIRST,
            status_version: StatusVersion::FIRST,
        }
    }

    #[test]
    fn bits_are_what_rights_give_within_the_owners_mode() {
        let dir = status(Kind::Directory, 0);
        for (rights, wanted) in
            [("", 0), ("l", 5), ("r", 0), ("i", 2), ("ld", 7), ("la", 7), ("lk", 5)]
        {
            assert_eq!(bits(rights.parse().unwrap(), &dir, false), wanted, "{rights}");
        }
        let rows = [
            ("r", 0o600, false, 4),
            ("r", 0o700, false, 5),
            ("rw", 0o400, false, 4),
            ("w", 0o755, false, 2),
            ("l", 0o777, false, 0),
        ];
        for (rights, mode, owns, wanted) in rows {
            assert_eq!(
                bits(rights.parse().unwrap(), &status(Kind::File, mode), owns),
                wanted,
                "{rights} {mode:o}"
            );
        }
        let file = status(Kind::File, 0o644);
        assert_eq!(bits(Rights::INSERT, &file, true), 2, "a drop box");
        assert_eq!(bits(Rights::INSERT, &file, false), 0);
    }

    #[test]
    fn an_acl_has_its_users_in_order_and_nothing_for_others() {
        let bytes = encode(6, vec![(20, 4), (10, 7)]);
        let words: Vec<u16> =
            bytes[4..].chunks(8).map(|entry| u16::from_le_bytes([entry[0], entry[1]])).collect();
        assert_eq!(words, [0x01, 0x02, 0x02, 0x04, 0x10, 0x20]);
        assert_eq!(bytes[12..20], [2, 0, 7, 0, 10, 0, 0, 0]);
        assert_eq!(bytes.len(), 4 + 6 * 8);
    }
}
