//! A file's status as foreign clients see it.

use afs3::structs::{FetchStatus, file_type};
use guard::Rights;
use types::{Answer, Call, Fid, Kind, Status};

use super::{FileCall, unexpected};
use crate::{Refusal, foreign_fid};

/// The mode of a mount point: a symlink that has no execute bit is one for clients.
const MOUNT_POINT_MODE: u32 = 0o644;
/// Ids from this one on stand for users without a uid (`types::OWN_IDS`).
const OWN_IDS: u32 = types::OWN_IDS;

impl FileCall<'_> {
    /// The status of a file for this caller, promised to its host.
    pub(super) fn shown(&self, fid: Fid) -> Result<FetchStatus, Refusal> {
        let Answer::Status(status) = self.services.ask(Call::GetStatus { fid })? else {
            return Err(unexpected());
        };
        self.shown_as(&status)
    }

    /// The same of a status that is known already.
    pub(super) fn shown_as(&self, status: &Status) -> Result<FetchStatus, Refusal> {
        let rights_of = |answer| match answer {
            Answer::Rights { rights, .. } => Ok(Rights(rights)),
            _ => Err(unexpected()),
        };
        let rights = rights_of(self.services.ask(Call::Rights { fid: status.fid })?)?;
        // A client judges by these the users of its machine who have no token.
        let of_nobody = self.services.ask_as_nobody(Call::Rights { fid: status.fid })?;
        let length = self.length_of(status)?;
        let fid = foreign_fid(status.fid)?;
        let mut shown = FetchStatus {
            interface_version: 1,
            file_type: type_of(status.kind),
            link_count: status.links,
            author: owner(status.uid),
            owner: owner(status.uid),
            caller_access: rights.0,
            anonymous_access: rights_of(of_nobody)?.0,
            mode: mode_of(status),
            // Each tells itself as its parent, as AFS's servers do for directories. Of a file a
            // client asks its parent for the rights to it, which are these; without a parent it
            // does not accept the status.
            parent_vnode: fid.vnode,
            parent_unique: fid.unique,
            residency_mask: 1,
            client_mod_time: status.modified.secs as u32,
            server_mod_time: status.changed.secs as u32,
            group: owner(status.gid),
            lock_count: self.service.locks.count(status.fid) as u32,
            ..FetchStatus::default()
        };
        shown.set_length(length);
        let versions = &self.service.versions;
        shown.set_data_version(versions.told(self.host.number, status.fid, status.data_version));
        Ok(shown)
    }

    /// Bytes that a client fetches of the file.
    fn length_of(&self, status: &Status) -> Result<u64, Refusal> {
        match status.kind {
            Kind::Directory => Ok(self.pages_of(status.fid)?.len() as u64),
            Kind::MountPoint => Ok(self.target_of(status)?.len() as u64),
            Kind::File | Kind::Symlink => Ok(status.size),
            _ => Ok(0),
        }
    }

    /// The target of a link.
    pub(super) fn target_of(&self, status: &Status) -> Result<Vec<u8>, Refusal> {
        let Answer::Target(target) = self.services.ask(Call::ReadLink { fid: status.fid })? else {
            return Err(unexpected());
        };
        Ok(foreign_target(status.kind, &target))
    }
}

/// The target of a link as foreign clients see it. That of a mount point ends with a dot, by which
/// they know that it is whole.
pub(crate) fn foreign_target(kind: Kind, target: &[u8]) -> Vec<u8> {
    let mut target = target.to_vec();
    if kind == Kind::MountPoint && target.last() != Some(&b'.') {
        target.push(b'.');
    }
    target
}

fn type_of(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => file_type::DIRECTORY,
        Kind::Symlink | Kind::MountPoint => file_type::SYMLINK,
        // AFS has no devices, pipes and sockets: they are files without content.
        _ => file_type::FILE,
    }
}

pub(crate) fn mode_of(status: &Status) -> u32 {
    match status.kind {
        Kind::MountPoint => MOUNT_POINT_MODE,
        Kind::Symlink => u32::from(status.mode) | 0o111,
        Kind::File | Kind::Directory => status.mode.into(),
        _ => 0,
    }
}

/// The number of a principal for an owner's uid: the same number, since AFS's sites give users the
/// same one in both; the principal's own if the user has no uid.
pub(crate) fn owner(uid: u32) -> u32 {
    if uid >= OWN_IDS { uid - OWN_IDS } else { uid }
}
