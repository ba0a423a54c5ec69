//! One volume server: questions, and what is on its partitions.

use std::time::Duration;

use afs3::errors::VOLSERVOLBUSY;
use afs3::volumes::{
    DiskPartition64, PartitionPath, TransactionInfo, VolumeReport, VolumesAnswer, VolumesCall,
    partition_name,
};
use types::{Fault, ServerId};

use crate::afs_calls::AfsVolumeServers;
use crate::{Servers, VosError};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the calls of a leader that ended may go on at servers: one that sends a dump ends when
/// the other server has taken all of it.
const OVER_WITHIN: Duration = Duration::from_secs(300);

/// The volume server of a server.
#[derive(Clone, Copy)]
pub(super) struct VolumeServer<'s> {
    pub servers: &'s dyn Servers,
    pub afs: &'s dyn AfsVolumeServers,
    pub server: ServerId,
}

/// Whether the server does not have the volume.
pub(super) fn is_missing(error: &VosError) -> bool {
    error.fault() == Some(Fault::NoVolume)
}

impl<'s> VolumeServer<'s> {
    /// # Errors
    /// `Unfit`: there is no way to volume servers.
    pub(super) fn of(servers: &'s dyn Servers, server: ServerId) -> Result<Self, VosError> {
        Ok(VolumeServer { servers, afs: servers.afs()?, server })
    }

    pub(super) fn name(&self) -> String {
        self.servers.name(self.server)
    }

    pub(super) fn odd(&self) -> VosError {
        VosError::Odd(self.name())
    }

    pub(super) fn ask(&self, call: &VolumesCall) -> Result<VolumesAnswer, VosError> {
        self.afs.ask(self.server, call)
    }

    /// The numbers of its partitions.
    pub(super) fn partitions(&self) -> Result<Vec<i32>, VosError> {
        match self.ask(&VolumesCall::XListPartitions {})? {
            VolumesAnswer::XListPartitions { partitions } => Ok(partitions.as_slice().to_vec()),
            _ => Err(self.odd()),
        }
    }

    /// Checks that it answers and has the partition, before anything is changed.
    ///
    /// # Errors
    /// `Unfit`; those of the call.
    pub(super) fn need_partition(&self, partition: i32) -> Result<(), VosError> {
        if self.partitions()?.contains(&partition) {
            return Ok(());
        }
        let name = partition_name(partition).unwrap_or_default();
        Err(VosError::Unfit(format!("{} has no partition {name}", self.name())))
    }

    pub(super) fn partition_info(&self, name: &str) -> Result<DiskPartition64, VosError> {
        let partition = PartitionPath::new(name.as_bytes()).map_err(|_| self.odd())?;
        match self.ask(&VolumesCall::PartitionInfo64 { partition })? {
            VolumesAnswer::PartitionInfo64 { info } => Ok(*info),
            _ => Err(self.odd()),
        }
    }

    /// All volumes of a partition.
    pub(super) fn list(&self, partition: i32) -> Result<Vec<VolumeReport>, VosError> {
        match self.ask(&VolumesCall::ListVolumes { partition, flags: 1 })? {
            VolumesAnswer::ListVolumes { volumes } => Ok(volumes.as_slice().to_vec()),
            _ => Err(self.odd()),
        }
    }

    /// A volume of a partition, if it has it.
    pub(super) fn one(
        &self,
        partition: i32,
        volume: u32,
    ) -> Result<Option<VolumeReport>, VosError> {
        match self.ask(&VolumesCall::ListOneVolume { partition, volume }) {
            Ok(VolumesAnswer::ListOneVolume { volumes }) => {
                Ok(volumes.as_slice().iter().find(|one| one.volume == volume).copied())
            }
            Ok(_) => Err(self.odd()),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A volume, wherever the server has it.
    pub(super) fn find(&self, volume: u32) -> Result<Option<(i32, VolumeReport)>, VosError> {
        for partition in self.partitions()? {
            if let Some(found) = self.one(partition, volume)? {
                return Ok(Some((partition, found)));
            }
        }
        Ok(None)
    }

    /// The transactions that are open.
    pub(super) fn transactions(&self) -> Result<Vec<TransactionInfo>, VosError> {
        match self.ask(&VolumesCall::Monitor {})? {
            VolumesAnswer::Monitor { transactions } => Ok(transactions.as_slice().to_vec()),
            _ => Err(self.odd()),
        }
    }

    /// Ends a transaction, whoever began it.
    pub(super) fn end_transaction(&self, transaction: i32) -> Result<(), VosError> {
        self.ask(&VolumesCall::EndTrans { transaction }).map(drop)
    }

    /// Ends the transactions on these volumes that a leader left that ended, and waits for calls
    /// that the server makes for it still.
    ///
    /// # Errors
    /// `AfsRefused` with VOLSERVOLBUSY, if they do not end.
    pub(super) fn end_left(&self, volumes: &[u32]) -> Result<(), VosError> {
        let mut waited = Duration::ZERO;
        loop {
            let open = self.transactions()?;
            let left: Vec<_> = open.iter().filter(|one| volumes.contains(&one.volume)).collect();
            if left.is_empty() {
                return Ok(());
            }
            for one in left {
                match self.end_transaction(one.transaction) {
                    // A call is in it, or it has ended by itself.
                    Ok(()) | Err(VosError::AfsRefused { .. } | VosError::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if waited > OVER_WITHIN {
                let (server, call) = (self.name(), "EndTrans");
                return Err(VosError::AfsRefused { server, call, code: VOLSERVOLBUSY });
            }
            self.servers.pause(POLL_INTERVAL);
            waited += POLL_INTERVAL;
        }
    }
}
