//! The server and partition of a volume according to the cell's database.

use std::sync::Arc;

use types::{Fault, SiteKind, VolumeGroup};

use crate::cell::{CellLink, may_ask};
use crate::volumes::{ViceVolume, Volumes};

/// The owner of a volume that this server has, according to the database.
pub(crate) enum OwnedBy {
    /// This server.
    Ours,
    /// Another server.
    Others,
    /// This server, on another partition, which has the volume too.
    Beside,
    /// The database does not say.
    Unrecorded,
}

/// See the head of the file.
pub(crate) struct Sites {
    cell: Arc<CellLink>,
    volumes: Arc<Volumes>,
}

impl Sites {
    pub fn new(cell: Arc<CellLink>, volumes: Arc<Volumes>) -> Sites {
        Sites { cell, volumes }
    }

    /// The owner. May ask another server, so hold no lock.
    ///
    /// # Errors
    /// `CellAway`.
    pub fn owner(&self, volume: &ViceVolume) -> Result<OwnedBy, Fault> {
        let Some(db) = self.cell.db()? else { return Ok(OwnedBy::Ours) };
        let Some(group) = db.group_of(volume.store.id())? else { return Ok(OwnedBy::Unrecorded) };
        self.owner_in(&group.record, volume)
    }

    /// The owner according to this record.
    ///
    /// # Errors
    /// Errors of the partitions.
    pub fn owner_in(&self, group: &VolumeGroup, volume: &ViceVolume) -> Result<OwnedBy, Fault> {
        let Some(site) = group.sites.iter().find(|site| site.kind == SiteKind::ReadWrite) else {
            return Ok(OwnedBy::Unrecorded);
        };
        if site.server != self.cell.me().id {
            return Ok(OwnedBy::Others);
        }
        let partitions = self.volumes.partitions();
        let Some(no) = partitions.called(&site.partition).filter(|no| *no != volume.no) else {
            return Ok(OwnedBy::Ours);
        };
        let is_there = partitions.get(no)?.volumes().volume(volume.store.id())?.is_some();
        Ok(if is_there { OwnedBy::Beside } else { OwnedBy::Ours })
    }

    /// Before the first call of a client to an unconfirmed volume: asks whether a copy of it has
    /// taken over elsewhere. A volume serves while the database cannot be asked, as before this
    /// server's restart.
    ///
    /// # Errors
    /// `CellAway` in a thread that may not wait: the call is executed again in another one.
    pub fn confirm(&self, volume: &ViceVolume) -> Result<(), Fault> {
        let is_elsewhere = self.cell.available().is_some_and(|db| db.access().is_elsewhere());
        if is_elsewhere && !may_ask() {
            return Err(Fault::CellAway);
        }
        let (id, moves) = (volume.store.id().0, self.volumes.moves());
        let asked = moves.superseded();
        match self.owner(volume) {
            Ok(OwnedBy::Others) => {
                tracing::warn!(
                    volume = id,
                    "a copy of this volume took over at another server; what is here serves no \
                     client"
                );
                moves.supersede(volume);
            }
            Ok(OwnedBy::Ours | OwnedBy::Beside | OwnedBy::Unrecorded) => {
                moves.confirm(volume, asked);
            }
            Err(fault) => {
                tracing::info!(
                    volume = id,
                    %fault,
                    "the cell's database cannot say whether a copy of this volume took over; it \
                     serves meanwhile"
                );
                moves.serve_in_doubt(volume, asked);
            }
        }
        Ok(())
    }
}
