//! The sites of a volume, as the cell database says, and the nearest of them.

use std::sync::Arc;

use types::{
    Answer, CellCall, Fault, ServerId, ServerInfo, Site, VolumeGroup, VolumeId, VolumeInfo,
    VolumeState, WhichVolume,
};

use super::Cell;
use super::server_connection::ServerConnection;
use crate::{CallError, Cancel};

/// The sites of a volume of the group: those for readers, or that of the read-write volume.
pub(crate) fn sites(group: &VolumeGroup, read_only: bool) -> Vec<ServerId> {
    if read_only {
        group.readable_sites().map(|site| site.server).collect()
    } else {
        group.read_write_site().map(|site| site.server).into_iter().collect()
    }
}

impl Cell {
    /// The group of a volume, from the cell database.
    ///
    /// # Errors
    /// `NoVolume` if the database does not know it; otherwise why it cannot be asked.
    pub fn group(
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
