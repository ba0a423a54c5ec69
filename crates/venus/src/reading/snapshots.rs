//! `.snapshots`: a directory in the root of every writable volume, which no listing shows. In it
//! each snapshot of the volume is a mount point to the snapshot volume, under the label that it was
//! given.
//!
//! The client makes it up from the server's answer at each access (`VolumeCall::Examine`), so it
//! needs no promise and nothing of it is cached. An existing file of the same name comes first.

use std::sync::Arc;

use bytes::Bytes;
use types::{
    Answer, Call, Cookie, DataVersion, Fault, Fid, Kind, Name, Status, StatusVersion, Timestamp,
    VnodeNo, VolumeCall, VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::base::{
    Attributes, DirListing, EntryReply, Error, ListEntry, LookupReply, RequestContext,
};
use crate::calls::Calls;
use crate::names::{snapshot_point, snapshots_dir};
use crate::session::Ground;

/// Its name.
const NAME: &[u8] = b".snapshots";

/// Separates a volume's name from the label of its snapshot.
const INFIX: &[u8] = b".snapshot.";

/// See the head of the file.
pub(crate) struct Snapshots {
    ground: Ground,
    calls: Arc<Calls>,
    own_locks: bool,
}

impl Snapshots {
    pub fn new(ground: &Ground, calls: &Arc<Calls>, own_locks: bool) -> Self {
        Snapshots { ground: ground.clone(), calls: Arc::clone(calls), own_locks }
    }

    /// The snapshots of the volume, each with its name here, in the order of their numbers; and the
    /// volume.
    fn snapshots(
        &self,
        request: &RequestContext<'_>,
        volume: VolumeId,
    ) -> Result<(VolumeInfo, Vec<(Name, VolumeInfo)>), Error> {
        let call = Call::Volume(VolumeCall::Examine { volume: WhichVolume::Id(volume) });
        let Answer::Volumes { volumes, .. } = self.calls.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let mut volumes = volumes.into_iter();
        let own = volumes.next().ok_or(Fault::NoVolume)?;
        let shown =
            volumes.filter(|other| other.kind == VolumeKind::Snapshot && other.tree == own.tree);
        let mut shown: Vec<_> =
            shown.filter_map(|other| Some((label(&own.name, &other.name)?, other))).collect();
        shown.sort_unstable_by_key(|(_, info)| info.id);
        Ok((own, shown))
    }

    /// The file that a name means, if the name is `.snapshots` or is looked up in it. `None`:
    /// neither.
    pub(crate) fn find_snapshot(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        name: &Name,
    ) -> Result<Option<LookupReply>, Error> {
        let status = match dir {
            dir if dir == snapshots_dir(dir.volume) => {
                let (_, shown) = self.snapshots(request, dir.volume)?;
                let Some((_, info)) = shown.into_iter().find(|(label, _)| label == name) else {
                    return Ok(Some(LookupReply::Absent {
                        cacheable: false,
                        stamp: self.ground.names.stamp(),
                    }));
                };
                status(snapshot_point(dir.volume, info.id), Kind::MountPoint, info.created)
            }
            dir if dir.vnode == VnodeNo::ROOT && name.as_bytes() == NAME && !self.own_locks => {
                let (own, _) = self.snapshots(request, dir.volume)?;
                if own.kind != VolumeKind::ReadWrite {
                    return Ok(None);
                }
                status(snapshots_dir(dir.volume), Kind::Directory, own.created)
            }
            _ => return Ok(None),
        };
        let mut tables = self.ground.names.lock();
        tables.nodes.refer(status.fid);
        Ok(Some(LookupReply::Entry(EntryReply {
            status,
            cacheable: false,
            name_cacheable: false,
            stamp: self.ground.names.stamp(),
        })))
    }

    /// The status of a made-up file.
    pub(crate) fn snapshot_status(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
    ) -> Result<Attributes, Error> {
        let (own, shown) = self.snapshots(request, fid.volume)?;
        let status = if fid == snapshots_dir(fid.volume) {
            status(fid, Kind::Directory, own.created)
        } else {
            let info = of(fid, &shown).ok_or(Fault::Stale)?;
            status(fid, Kind::MountPoint, info.created)
        };
        Ok(Attributes { status, cacheable: false, stamp: self.ground.names.stamp() })
    }

    /// The target of a made-up mount point.
    pub(crate) fn snapshot_target(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
    ) -> Result<Bytes, Error> {
        let (_, shown) = self.snapshots(request, fid.volume)?;
        let info = of(fid, &shown).ok_or(Fault::Stale)?;
        Ok([b"#", info.name.as_bytes()].concat().into())
    }

    /// The entries behind `cookie`.
    pub(crate) fn list_snapshots(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        cookie: Cookie,
        plus: bool,
    ) -> Result<DirListing, Error> {
        let (_, shown) = self.snapshots(request, dir.volume)?;
        let entry = |(name, info): (Name, VolumeInfo)| {
            let fid = snapshot_point(dir.volume, info.id);
            let status = plus.then(|| status(fid, Kind::MountPoint, info.created));
            ListEntry {
                name,
                fid,
                kind: Kind::MountPoint,
                cookie: Cookie(info.id.0),
                status,
                cacheable: false,
                target: None,
            }
        };
        let entries =
            shown.into_iter().filter(|(_, info)| info.id.0 > cookie.0).map(entry).collect();
        Ok(DirListing {
            entries,
            end: true,
            names_cacheable: false,
            stamp: self.ground.names.stamp(),
        })
    }
}

fn status(fid: Fid, kind: Kind, at: Timestamp) -> Status {
    let mode = if kind == Kind::Directory { 0o555 } else { 0o777 };
    let links = if kind == Kind::Directory { 2 } else { 1 };
    Status {
        fid,
        kind,
        mode,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 0,
        gid: 0,
        links,
        size: 0,
        used: 0,
        device: 0,
        accessed: at,
        modified: at,
        changed: at,
        created: at,
        data_version: DataVersion::FIRST,
        status_version: StatusVersion::FIRST,
    }
}

/// The name of a snapshot in `.snapshots`: its label, or the whole name.
fn label(volume: &Name, snapshot: &Name) -> Option<Name> {
    let rest = snapshot
        .as_bytes()
        .strip_prefix(volume.as_bytes())
        .and_then(|rest| rest.strip_prefix(INFIX));
    Name::new(rest.filter(|rest| !rest.is_empty()).unwrap_or(snapshot.as_bytes())).ok()
}

fn of(fid: Fid, shown: &[(Name, VolumeInfo)]) -> Option<&VolumeInfo> {
    shown.iter().map(|(_, info)| info).find(|info| snapshot_point(fid.volume, info.id) == fid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_appear_under_their_labels() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let of = |volume: &str, snapshot: &str| label(&name(volume), &name(snapshot)).unwrap();
        assert_eq!(of("home.joe", "home.joe.snapshot.monday"), name("monday"));
        assert_eq!(of("home.joe", "before-the-move"), name("before-the-move"));
        assert_eq!(
            of("home.joe", "home.joe.snapshot."),
            name("home.joe.snapshot."),
            "no name is empty"
        );
    }
}
