//! Finds the place of a volume by its name or number.

use types::{
    Name, Revised, ServerId, ServerKind, SiteKind, VolumeGroup, VolumeId, VolumeInfo, VolumeKind,
    WhichVolume,
};

use crate::{Servers, VosError, examine};

/// A volume at a server.
#[derive(Clone, Debug)]
pub struct FoundVolume {
    /// The server that has it.
    pub server: ServerId,
    /// The volume, followed by the others of its group at that server.
    pub volumes: Vec<VolumeInfo>,
    /// The database's record of its group.
    pub group: Option<Revised<VolumeGroup>>,
}

impl FoundVolume {
    /// The volume itself.
    pub fn volume(&self) -> &VolumeInfo {
        self.volumes.first().expect("what was found has at least itself")
    }
}

/// The name of a group: the volume's name without the ending of its kind.
pub fn base_name(name: &Name) -> Name {
    let bytes = name.as_bytes();
    let ending = [&b".readonly"[..], b".backup", b".releasing"]
        .into_iter()
        .find_map(|end| bytes.strip_suffix(end));
    let snapshot =
        || bytes.windows(10).position(|part| part == b".snapshot.").map(|at| &bytes[..at]);
    let base = ending.or_else(snapshot).and_then(|base| Name::new(base).ok());
    base.unwrap_or_else(|| name.clone())
}

/// Finds a volume: at the place that the database records; a read-only one at any site that has it.
/// A volume that the database does not have, such as a snapshot, is searched at `at`, or at the
/// server that has the group, or at all servers.
///
/// # Errors
/// `NoVolume`; errors of the database and of the servers.
pub fn find(
    servers: &dyn Servers,
    which: &WhichVolume,
    at: Option<ServerId>,
) -> Result<FoundVolume, VosError> {
    let group = group_of(servers, which)?;
    let mut away = None;
    for server in places(servers, group.as_ref().map(|seen| &seen.record), which, at)? {
        match examine(servers, server, which.clone()) {
            Ok(Some(volumes)) => {
                let tree = volumes.first().map_or(VolumeId(0), |volume| volume.tree);
                let group = group.filter(|seen| seen.record.read_write == tree);
                return Ok(FoundVolume { server, volumes, group });
            }
            Ok(None) => {}
            Err(error @ (VosError::Away { .. } | VosError::Refused { .. })) => away = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(away.unwrap_or(VosError::NoVolume))
}

/// The database's record of the volume's group.
pub(crate) fn group_of(
    servers: &dyn Servers,
    which: &WhichVolume,
) -> Result<Option<Revised<VolumeGroup>>, VosError> {
    let db = servers.db();
    Ok(match which {
        WhichVolume::Id(number) => db.group_of(*number)?,
        WhichVolume::Name(name) => match db.group_named(name)? {
            Some(seen) => Some(seen),
            None => db.group_named(&base_name(name))?,
        },
    })
}

/// The servers to ask, the likeliest first.
fn places(
    servers: &dyn Servers,
    group: Option<&VolumeGroup>,
    which: &WhichVolume,
    at: Option<ServerId>,
) -> Result<Vec<ServerId>, VosError> {
    if let Some(server) = at {
        return Ok(vec![server]);
    }
    let Some(group) = group else {
        let all = servers.db().servers()?.into_iter().map(|seen| seen.record);
        return Ok(all.filter(|one| one.kind() == ServerKind::Rialto).map(|one| one.id).collect());
    };
    let is_read_only = match which {
        WhichVolume::Id(id) => group.read_only == Some(*id),
        WhichVolume::Name(name) => name.as_bytes().ends_with(b".readonly"),
    };
    let wanted = if is_read_only { SiteKind::ReadOnly } else { SiteKind::ReadWrite };
    let of =
        |kind| group.sites.iter().filter(move |site| site.kind == kind).map(|site| site.server);
    let other = if is_read_only { SiteKind::ReadWrite } else { SiteKind::ReadOnly };
    let mut places = Vec::new();
    for server in of(wanted).chain(of(other)) {
        if !places.contains(&server) {
            places.push(server);
        }
    }
    Ok(places)
}

/// The volume of this kind among those that a server has of a group.
pub(crate) fn of_kind(volumes: &[VolumeInfo], kind: VolumeKind) -> Option<&VolumeInfo> {
    volumes.iter().find(|volume| volume.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_a_group_have_its_name_and_an_ending() {
        for (name, base) in [
            ("home", "home"),
            ("home.readonly", "home"),
            ("home.backup", "home"),
            ("home.snapshot.before", "home"),
            ("home.alice", "home.alice"),
            (".readonly", ".readonly"),
        ] {
            assert_eq!(
                base_name(&Name::new(name.as_bytes()).unwrap()),
                Name::new(base.as_bytes()).unwrap()
            );
        }
    }
}
