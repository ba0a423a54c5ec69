//! Fids that the client makes up (`reading/snapshots.rs`): no server has a file of these.

use types::{Fid, Uniquifier, VnodeNo, VolumeId};

/// Vnode numbers from here on are made up. No volume has so many files, and the mount's inode
/// numbers end a bit higher.
const FIRST: u64 = 1 << 47;

pub(crate) const SNAPSHOTS_DIR: VnodeNo = VnodeNo(FIRST + 1);

/// Whether the server has no file of this fid.
pub(crate) fn is_made_up(fid: Fid) -> bool {
    fid != Fid::CURRENT && fid.vnode.0 >= FIRST
}

/// The fid of `.snapshots` in the volume.
pub(crate) fn snapshots_dir(volume: VolumeId) -> Fid {
    Fid { volume, vnode: SNAPSHOTS_DIR, unique: Uniquifier(1) }
}

/// The fid of a snapshot's mount point.
pub(crate) fn snapshot_point(volume: VolumeId, snapshot: VolumeId) -> Fid {
    Fid { volume, vnode: VnodeNo(FIRST + 2 * snapshot.0), unique: Uniquifier(snapshot.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_fids_differ_from_real_ones() {
        let volume = VolumeId(0x2000_0001);
        assert!(
            is_made_up(snapshots_dir(volume)) && is_made_up(snapshot_point(volume, VolumeId(7)))
        );
        assert!(
            !is_made_up(Fid::CURRENT)
                && !is_made_up(Fid::root(volume))
                && !is_made_up(Fid::rights(volume))
        );
        assert_ne!(snapshots_dir(volume), snapshot_point(volume, VolumeId(0)));
        assert_eq!(
            (SNAPSHOTS_DIR.0 % 2, snapshot_point(volume, VolumeId(9)).vnode.0 % 2),
            (1, 0),
            "directories are odd"
        );
    }
}
