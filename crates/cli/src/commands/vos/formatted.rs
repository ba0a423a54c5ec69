//! Volumes as `-format` shows them: a name and its value in each line, for programs.

use std::collections::BTreeMap;

use types::{ServerInfo, Timestamp, VolumeId, VolumeKind, VolumeState};

use super::context::{LocatedVolume, VosContext, text};
use super::show;

/// Volumes of a server by their trees and kinds.
pub(super) type VolumesByTree<'v> = BTreeMap<(VolumeId, VolumeKind), &'v LocatedVolume>;

pub(super) fn by_tree(volumes: &[LocatedVolume]) -> VolumesByTree<'_> {
    volumes.iter().map(|volume| ((volume.tree, volume.kind), volume)).collect()
}

/// The lines of a volume, in OpenAFS's order. `others`: its group is among them.
pub(super) fn lines(
    context: &VosContext,
    volume: &LocatedVolume,
    others: &VolumesByTree<'_>,
) -> Vec<String> {
    let of = |kind| others.get(&(volume.tree, kind));
    let number = |kind| of(kind).map_or(0, |one| one.id.0);
    let server = context.servers().iter().find(|one| one.id == volume.server);
    let address = server.and_then(|server| server.addresses.first());
    let name = server.map_or("?", |ServerInfo { name, .. }| name);
    let address = address.map_or_else(|| name.to_owned(), |address| address.ip().to_string());
    let is_used = volume.state != VolumeState::Offline && !volume.state.comes();
    let kind = match volume.kind {
        // OpenAFS has no other kind for a clone.
        VolumeKind::Snapshot => "BK",
        kind => show::kind(kind),
    };
    let never = Timestamp::new(0, 0);
    let backup = of(VolumeKind::Backup).map_or(never, |backup| backup.created);
    let date = |of: &str, time: Timestamp| format!("{of}\t{:<9}\t{}", time.secs, show::date(time));
    vec![
        format!("name\t\t{}", text(&volume.name)),
        format!("id\t\t{}", volume.id.0),
        format!("serv\t\t{address}\t{name}"),
        format!("part\t\t{}", context.name_of(volume.server, volume.partition)),
        "status\t\tOK".to_owned(),
        format!("backupID\t{}", number(VolumeKind::Backup)),
        format!("parentID\t{}", volume.tree.0),
        format!("cloneID\t\t{}", number(VolumeKind::ReadOnly)),
        format!("inUse\t\t{}", if is_used { "Y" } else { "N" }),
        "needsSalvaged\tN".to_owned(),
        "destroyMe\tN".to_owned(),
        format!("type\t\t{kind}"),
        date("creationDate", volume.created),
        date("accessDate", never),
        date("updateDate", volume.updated),
        date("backupDate", backup),
        date("copyDate", volume.created),
        "flags\t\t0\t(Optional)".to_owned(),
        format!("diskused\t{}", volume.used_bytes.div_ceil(1024)),
        format!("maxquota\t{}", volume.quota_bytes / 1024),
        "minquota\t0\t(Optional)".to_owned(),
        format!("filecount\t{}", volume.used_files),
        "dayUse\t\t0".to_owned(),
        "weekUse\t\t0\t(Optional)".to_owned(),
        "spare2\t\t0\t(Optional)".to_owned(),
        "spare3\t\t0\t(Optional)".to_owned(),
    ]
}
