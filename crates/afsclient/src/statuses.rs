//! Status and fids of both worlds.
//!
//! - A fid's numbers are the same in both.
//! - AFS's data version of a new file may be 0, which is Rialto's "none": here each is one higher.
//! - A symbolic link without any execute bit is a mount point. The length of its target counts the
//!   dot at the end, which is no part of it here.

use afs3::structs::{AfsFid, FetchStatus, file_type};
use types::limits::FILE_BYTES_MAX;
use types::{
    DataVersion, Fault, Fid, Kind, Status, StatusVersion, Timestamp, Uniquifier, VnodeNo, VolumeId,
};

/// The size of a directory, as for Rialto's own.
const DIRECTORY_BYTES: u64 = 4096;
/// Any execute bit.
const EXECUTE: u32 = 0o111;
/// The permission, set-id and sticky bits of a mode.
const MODE_BITS: u32 = 0o7777;
/// Disks count in these.
const BLOCK_BYTES: u64 = 512;

/// The fid as AFS has it.
///
/// # Errors
/// `Stale`: no file of AFS has such numbers.
pub(crate) fn foreign(fid: Fid) -> Result<AfsFid, Fault> {
    let word = |number: u64| u32::try_from(number).map_err(|_| Fault::Stale);
    let fid = AfsFid {
        volume: word(fid.volume.0)?,
        vnode: word(fid.vnode.0)?,
        unique: word(fid.unique.0)?,
    };
    if fid.volume == 0 || fid.vnode == 0 { Err(Fault::Stale) } else { Ok(fid) }
}

/// The fid of these numbers.
pub(crate) fn fid_of(volume: VolumeId, vnode: u32, unique: u32) -> Fid {
    Fid { volume, vnode: VnodeNo(vnode.into()), unique: Uniquifier(unique.into()) }
}

/// The fid as Rialto has it.
pub(crate) fn local(fid: AfsFid) -> Fid {
    fid_of(VolumeId(fid.volume.into()), fid.vnode, fid.unique)
}

/// The data version.
pub(crate) fn version(status: &FetchStatus) -> DataVersion {
    DataVersion::FIRST.raised(status.data_version())
}

/// The directory that has the file, as its status says: of a file with several names one of them.
pub(crate) fn parent(fid: Fid, status: &FetchStatus) -> Fid {
    fid_of(fid.volume, status.parent_vnode, status.parent_unique)
}

/// The kind of a file; `None`: the status is none, or contradicts the number of its vnode.
pub(crate) fn kind(fid: Fid, status: &FetchStatus) -> Option<Kind> {
    let kind = match status.file_type {
        file_type::FILE => Kind::File,
        file_type::DIRECTORY => Kind::Directory,
        file_type::SYMLINK if status.mode & EXECUTE == 0 => Kind::MountPoint,
        file_type::SYMLINK => Kind::Symlink,
        _ => return None,
    };
    (fid.vnode.is_directory() == (kind == Kind::Directory)).then_some(kind)
}

/// The status as Rialto has it, with this version (`promises.rs`); `None`: the server's answer
/// makes no sense.
pub(crate) fn shown(
    fid: Fid,
    status: &FetchStatus,
    status_version: StatusVersion,
) -> Option<Status> {
    let kind = kind(fid, status)?;
    if status.error_code != 0 || status.length() > FILE_BYTES_MAX {
        return None;
    }
    let size = match kind {
        Kind::Directory => DIRECTORY_BYTES,
        Kind::MountPoint => status.length().saturating_sub(1),
        _ => status.length(),
    };
    let mode = if kind.has_target() { 0o777 } else { (status.mode & MODE_BITS) as u16 };
    let modified = Timestamp::new(status.client_mod_time.into(), 0);
    let changed = Timestamp::new(status.server_mod_time.max(status.client_mod_time).into(), 0);
    Some(Status {
        fid,
        kind,
        mode,
        by_list: true,
        own_list: false,
        read_times: false,
        uid: status.owner,
        gid: status.group,
        links: status.link_count,
        size,
        used: status.length().next_multiple_of(BLOCK_BYTES),
        device: 0,
        accessed: modified,
        modified,
        changed,
        created: modified,
        data_version: version(status),
        status_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: StatusVersion = StatusVersion::FIRST;

    fn status(kind: u32, mode: u32) -> FetchStatus {
        FetchStatus { file_type: kind, mode, link_count: 1, ..FetchStatus::default() }
    }

    #[test]
    fn a_status_that_contradicts_its_fid_is_none() {
        let (file, dir) = (Fid::new(7, 2, 1), Fid::new(7, 3, 1));
        assert_eq!(shown(file, &status(file_type::FILE, 0o644), FIRST).unwrap().kind, Kind::File);
        assert_eq!(shown(dir, &status(file_type::FILE, 0o644), FIRST), None);
        assert_eq!(shown(file, &status(file_type::DIRECTORY, 0o755), FIRST), None);
        assert_eq!(shown(file, &status(file_type::INVALID, 0), FIRST), None);
        let mut huge = status(file_type::FILE, 0o644);
        huge.set_length(u64::MAX);
        assert_eq!(shown(file, &huge, FIRST), None);
        let refused = FetchStatus { error_code: 13, ..status(file_type::FILE, 0o644) };
        assert_eq!(shown(file, &refused, FIRST), None);
    }

    #[test]
    fn a_link_without_execute_bits_is_a_mount_point() {
        let fid = Fid::new(7, 2, 1);
        let mut link = status(file_type::SYMLINK, 0o644);
        link.set_length(11);
        let shown_link = shown(fid, &link, FIRST).unwrap();
        assert_eq!((shown_link.kind, shown_link.size), (Kind::MountPoint, 10));
        link.mode = 0o755;
        let shown_link = shown(fid, &link, FIRST).unwrap();
        assert_eq!((shown_link.kind, shown_link.size, shown_link.mode), (Kind::Symlink, 11, 0o777));
    }

    #[test]
    fn versions_are_never_none() {
        let (fid, new) = (Fid::new(7, 2, 1), status(file_type::FILE, 0o644));
        let first = shown(fid, &new, FIRST).unwrap();
        assert_eq!(first.data_version, DataVersion::FIRST);
    }

    #[test]
    fn numbers_beyond_those_of_afs_are_no_file_of_it() {
        assert_eq!(foreign(Fid::new(1 << 32, 1, 1)), Err(Fault::Stale));
        assert_eq!(foreign(Fid::rights(VolumeId(7))), Err(Fault::Stale));
        assert_eq!(foreign(Fid::CURRENT), Err(Fault::Stale));
        let fid = Fid::new(7, 2, u32::MAX.into());
        assert_eq!(local(foreign(fid).unwrap()), fid);
    }
}
