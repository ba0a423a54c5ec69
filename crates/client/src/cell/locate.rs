//! Finding volumes. The client asks the cell database first; if that does not know the volume or
//! cannot be asked, it asks the home server.

use std::sync::Arc;

use types::{
    Answer, CellCall, Fault, Name, ServerId, ServerInfo, Site, VolumeGroup, VolumeId, VolumeInfo,
    VolumeState, WhichVolume,
};

use crate::cell::Cell;
use crate::server_connection::ServerConnection;
use crate::volume::RemoteVolume;
use crate::{CallError, Cancel};

/// Suffixes of the names of a group's volumes, behind the base name. Source: AFS.
const READ_ONLY: &[u8] = b".readonly";
const BACKUP: &[u8] = b".backup";
/// `vos snapshot` makes up these names; such snapshots are on the server of their group.
const SNAPSHOT: &[u8] = b".snapshot.";

/// The base name of the group, if the name has a suffix.
fn base(name: &Name) -> Option<Name> {
    let bytes = name.as_bytes();
    let cut = bytes.strip_suffix(READ_ONLY).or_else(|| bytes.strip_suffix(BACKUP)).or_else(|| {
        let at = bytes.windows(SNAPSHOT.len()).position(|window| window == SNAPSHOT)?;
        Some(&bytes[..at])
    });
    Name::new(cut.unwrap_or(bytes)).ok()
}

/// The sites of a volume of the group: those for readers, or that of the read-write volume.
pub(crate) fn sites(group: &VolumeGroup, read_only: bool) -> Vec<ServerId> {
    if read_only {
        group.readable_sites().map(|site| site.server).collect()
    } else {
        group.read_write_site().map(|site| site.server).into_iter().collect()
    }
}

impl Cell {
    /// Finds the volume of this name.
    ///
    /// # Errors
    /// `NoVolume` if there is none; otherwise the servers' errors.
    pub fn find(
        self: &Arc<Self>,
        name: &Name,
        cancel: Option<&Cancel>,
    ) -> Result<Arc<RemoteVolume>, CallError> {
        self.know_servers(cancel);
        let group = base(name).and_then(|base| self.group(WhichVolume::Name(base), cancel).ok());
        let which = WhichVolume::Name(name.clone());
        let mut sites = Vec::new();
        if let Some(group) = group {
            sites = self::sites(&group, name.as_bytes().ends_with(READ_ONLY));
            let epoch = if name.as_bytes().ends_with(READ_ONLY) { group.released_epoch } else { 0 };
            if let Some((connection, info)) = self.nearest(&sites, &which, epoch, cancel) {
                return Ok(RemoteVolume::new(self, info, connection, Some(group)));
            }
        }
        match self.home.examine(which, cancel) {
            Ok(info) => Ok(RemoteVolume::new(self, info, Arc::clone(&self.home), None)),
            // The volume is known, but none of its servers can be reached.
            Err(CallError::Fault(Fault::NoVolume))
                if sites.iter().any(|site| !self.is_home(*site)) =>
            {
                Err(CallError::TimedOut)
            }
            Err(error) => Err(error),
        }
    }

    /// The group of a volume, from the cell database.
    pub(crate) fn group(
        &self,
        volume: WhichVolume,
        cancel: Option<&Cancel>,
    ) -> Result<VolumeGroup, CallError> {
        if !self.has_others() {
            return Err(CallError::Fault(Fault::Unsupported));
        }
        match self.ask(&CellCall::Group { volume }, cancel)? {
            Answer::Groups { groups, .. } => groups
                .into_iter()
                .next()
                .map(|seen| seen.record)
                .ok_or(CallError::Fault(Fault::NoVolume)),
            _ => Err(CallError::Fault(Fault::Invalid)),
        }
    }

    /// The first of these servers, by rank, that has the volume online with this epoch or a later
    /// one.
    pub(crate) fn nearest(
        &self,
        servers: &[ServerId],
        volume: &WhichVolume,
        epoch_min: u64,
        cancel: Option<&Cancel>,
    ) -> Option<(Arc<ServerConnection>, VolumeInfo)> {
        let reached = servers.iter().filter_map(|server| {
            let connection = self
                .connection(*server, cancel)
                .ok()
                .filter(|connection| connection.remote.stands() || servers.len() == 1)?;
            let rank = if servers.len() == 1 { 0 } else { self.rank(*server, &connection) };
            Some((rank, connection))
        });
        let mut reached: Vec<(u16, Arc<ServerConnection>)> = reached.collect();
        reached.sort_by_key(|(rank, _)| *rank);
        reached.into_iter().find_map(|(_, connection)| {
            let info = connection.examine(volume.clone(), cancel).ok()?;
            (info.epoch >= epoch_min && info.state == VolumeState::Online)
                .then_some((connection, info))
        })
    }

    /// The servers that have the volume, with the names of their partitions: its sites, or the
    /// readable ones of a read-only volume.
    ///
    /// # Errors
    /// `NoVolume` if the database does not know it; otherwise why it cannot be asked.
    pub fn places_of(
        &self,
        volume: VolumeId,
        cancel: Option<&Cancel>,
    ) -> Result<Vec<(ServerInfo, String)>, CallError> {
        let group = self.group(WhichVolume::Id(volume), cancel)?;
        let servers = self.server_infos(cancel);
        let known = |site: &Site| {
            let info = servers.iter().find(|info| info.id == site.server).cloned();
            let unknown = || ServerInfo {
                id: site.server,
                name: String::new(),
                addresses: Vec::new(),
                keys: Vec::new(),
            };
            (info.unwrap_or_else(unknown), site.partition.clone())
        };
        Ok(if group.read_only == Some(volume) {
            group.readable_sites().map(known).collect()
        } else {
            group.read_write_site().map(known).into_iter().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_a_group_are_known_by_their_endings() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        for (volume, group) in [
            ("home.alice", "home.alice"),
            ("home.alice.readonly", "home.alice"),
            ("home.alice.backup", "home.alice"),
            ("home.alice.snapshot.20261122T100000Z", "home.alice"),
            ("readonly", "readonly"),
        ] {
            assert_eq!(base(&name(volume)), Some(name(group)), "{volume}");
        }
        assert_eq!(base(&name(".readonly")), None);
    }
}
