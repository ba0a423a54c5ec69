//! A transaction of a volume server: the hold on one volume.
//!
//! Model: it is ended by [`AfsTransaction::end`], or when it is dropped, without an answer that
//! counts. If the leader is killed the server ends it after some minutes without a call.

use std::cell::Cell;

use afs3::volumes::{
    RestoreCookie, VolserStatus, VolumeName, VolumeReport, VolumesAnswer, VolumesCall, volume_type,
};
use afs3::xdr::Chars;

use super::volume_server::VolumeServer;
use crate::VosError;

/// The unit of quotas.
const BLOCK_BYTES: u64 = 1024;
/// A field of `SetInfo` that stays as it is.
const SAME: i32 = -1;

/// See the head of the file.
pub(super) struct AfsTransaction<'s> {
    at: VolumeServer<'s>,
    number: i32,
    is_open: Cell<bool>,
}

/// A volume that is to be made.
pub(super) struct NewAfsVolume<'n> {
    pub partition: i32,
    pub name: &'n [u8],
    pub kind: i32,
    pub parent: u32,
    pub volume: u32,
}

pub(super) fn volume_name(name: &[u8]) -> Result<VolumeName, VosError> {
    let why = || {
        let name = String::from_utf8_lossy(name);
        VosError::Unfit(format!("servers of AFS have no volume with a name as long as {name}"))
    };
    VolumeName::new(name).ok().filter(|_| name.len() < 32).ok_or_else(why)
}

/// The name and the kind of a restored volume, whatever the dump says.
pub(super) fn cookie(name: &[u8], kind: i32, parent: u32) -> Result<RestoreCookie, VosError> {
    volume_name(name)?;
    let name = Chars::new(name).map_err(|error| VosError::Unfit(error.to_string()))?;
    Ok(RestoreCookie { name, kind, clone: 0, parent })
}

impl<'s> AfsTransaction<'s> {
    /// # Errors
    /// The server's; `Refused` with `NoVolume` if it does not have the volume there.
    pub(super) fn begin(
        at: VolumeServer<'s>,
        volume: u32,
        partition: i32,
        flags: i32,
    ) -> Result<Self, VosError> {
        match at.ask(&VolumesCall::TransCreate { volume, partition, flags })? {
            VolumesAnswer::TransCreate { transaction } => Ok(Self::of(at, transaction)),
            _ => Err(at.odd()),
        }
    }

    /// Makes a volume, which is out of service.
    ///
    /// # Errors
    /// The server's; `Odd` if it made another one.
    pub(super) fn create(at: VolumeServer<'s>, new: &NewAfsVolume<'_>) -> Result<Self, VosError> {
        let &NewAfsVolume { partition, kind, parent, volume, .. } = new;
        let name = volume_name(new.name)?;
        let call = VolumesCall::CreateVolume { partition, name, kind, parent, volume };
        match at.ask(&call)? {
            VolumesAnswer::CreateVolume { volume: made, transaction } => {
                let made_it = Self::of(at, transaction);
                if made == volume { Ok(made_it) } else { Err(at.odd()) }
            }
            _ => Err(at.odd()),
        }
    }

    fn of(at: VolumeServer<'s>, number: i32) -> Self {
        AfsTransaction { at, number, is_open: Cell::new(true) }
    }

    pub(super) fn number(&self) -> i32 {
        self.number
    }

    pub(super) fn set_flags(&self, flags: i32) -> Result<(), VosError> {
        self.at.ask(&VolumesCall::SetFlags { transaction: self.number, flags }).map(drop)
    }

    pub(super) fn delete(&self) -> Result<(), VosError> {
        self.at.ask(&VolumesCall::DeleteVolume { transaction: self.number }).map(drop)
    }

    pub(super) fn status(&self) -> Result<VolserStatus, VosError> {
        match self.at.ask(&VolumesCall::GetStatus { transaction: self.number })? {
            VolumesAnswer::GetStatus { status } => Ok(status),
            _ => Err(self.at.odd()),
        }
    }

    /// Makes a clone, which is out of service.
    pub(super) fn clone_as(&self, kind: i32, name: &[u8], volume: u32) -> Result<(), VosError> {
        let name = volume_name(name)?;
        let transaction = self.number;
        match self.at.ask(&VolumesCall::Clone { transaction, purge: 0, kind, name, volume })? {
            VolumesAnswer::Clone { volume: made } if made == volume => Ok(()),
            _ => Err(self.at.odd()),
        }
    }

    /// A clone shows what the volume shows now.
    pub(super) fn clone_again(&self, clone: u32) -> Result<(), VosError> {
        self.at.ask(&VolumesCall::ReClone { transaction: self.number, clone }).map(drop)
    }

    /// Sets the quota; 0: none.
    pub(super) fn set_quota(&self, bytes: u64) -> Result<(), VosError> {
        let blocks = i32::try_from(bytes.div_ceil(BLOCK_BYTES)).unwrap_or(i32::MAX);
        let info = VolumeReport { max_quota: blocks, ..unchanged() };
        let call = VolumesCall::SetInfo { transaction: self.number, info: Box::new(info) };
        self.at.ask(&call).map(drop)
    }

    /// Renames the volume.
    pub(super) fn rename(&self, name: &[u8]) -> Result<(), VosError> {
        let VolserStatus { kind, parent, clone, backup, .. } = self.status()?;
        let (transaction, name) = (self.number, volume_name(name)?);
        let call = VolumesCall::SetIdsTypes { transaction, name, kind, parent, clone, backup };
        self.at.ask(&call).map(drop)
    }

    /// Sends what changed since a date, 0: everything, to a transaction at another server.
    pub(super) fn forward(
        &self,
        from_date: i32,
        to: &AfsTransaction<'_>,
        cookie: RestoreCookie,
    ) -> Result<(), VosError> {
        let destination = self.at.afs.destination(to.at.server)?;
        let call = VolumesCall::Forward {
            transaction: self.number,
            from_date,
            destination,
            to_transaction: to.number,
            cookie,
        };
        self.at.ask(&call).map(drop)
    }

    /// Ends it.
    ///
    /// # Errors
    /// The server's, also one that it had kept for the end.
    pub(super) fn end(self) -> Result<(), VosError> {
        self.is_open.set(false);
        match self.at.ask(&VolumesCall::EndTrans { transaction: self.number })? {
            VolumesAnswer::EndTrans { code: 0 } => Ok(()),
            VolumesAnswer::EndTrans { code } => {
                Err(VosError::AfsRefused { server: self.at.name(), call: "EndTrans", code })
            }
            _ => Err(self.at.odd()),
        }
    }
}

impl Drop for AfsTransaction<'_> {
    fn drop(&mut self) {
        if self.is_open.get() {
            // The operation has an error already, and whoever repeats it ends what is left.
            let _ = self.at.end_transaction(self.number);
        }
    }
}

/// A report for `SetInfo` that changes nothing.
fn unchanged() -> VolumeReport {
    VolumeReport {
        name: Chars([0; 32]),
        volume: 0,
        kind: volume_type::RW,
        backup: 0,
        parent: 0,
        clone: 0,
        status: 0,
        copied: SAME,
        in_use: 0,
        needs_salvaged: 0,
        destroy_me: 0,
        created: SAME,
        accessed: SAME,
        updated: SAME,
        backed_up: SAME,
        day_use: SAME,
        files: SAME,
        max_quota: SAME,
        size: SAME,
        flags: SAME,
        spare0: SAME,
        spare1: SAME,
        spare2: SAME,
        spare3: SAME,
    }
}
