//! Read-only volumes of a read-write volume at another server (`vos release`).
//!
//! Model. A replica is made empty. Its next state comes in whole, or as what changed since the one
//! that it has, and is put together beside it (`Services::assemble`): the replica goes on showing
//! what it has, and shows the new state in one step. If that is not reached it stays as it was.

use afs3::volumes::{VolumeName, transaction_flag};
use types::{Fault, Name, VolumeCall, VolumeId, VolumeInfo, VolumeKind, refilled_name};

use super::restoring::IncomingDump;
use super::{BAD_NAME, VolserCall, new_name, refusal_of};
use crate::{CallStream, Refusal};

const ENDING: &[u8] = b".readonly";

/// The name of the read-write volume of a read-only one.
fn base_name(name: &Name) -> Result<Name, Refusal> {
    let base = name.as_bytes().strip_suffix(ENDING).ok_or(BAD_NAME)?;
    Name::new(base).map_err(|_| BAD_NAME)
}

impl VolserCall<'_> {
    /// A new replica, which shows an empty directory and serves no client, in a transaction.
    pub(super) fn create_replica(
        &self,
        partition: i32,
        name: &VolumeName,
        (parent, volume): (u32, u32),
    ) -> Result<(u32, i32), Refusal> {
        if parent == 0 || parent == volume {
            return Err(Refusal::INVALID);
        }
        let name = new_name(name)?;
        if !types::is_volume_name(name.as_bytes(), VolumeKind::ReadOnly) {
            return Err(BAD_NAME);
        }
        let tree = VolumeId(parent.into());
        let head = self.make_volume(partition, refilled_name(tree), Some(tree))?;
        let (id, kind) = ((volume != 0).then_some(VolumeId(volume.into())), VolumeKind::ReadOnly);
        let clone = VolumeCall::Clone { id, of: head, name, kind, replace: false };
        let made = self.made_when_swept(&clone);
        self.change(VolumeCall::Remove { id: head })?;
        self.begin_as_maker(partition, made?)
    }

    /// Reads the replica's next state, and lets it show that.
    pub(super) fn restore_replica(
        &self,
        info: &VolumeInfo,
        stream: &mut dyn CallStream,
    ) -> Result<(), Refusal> {
        let begin = || self.services.assemble(info.id).map_err(refusal_of);
        let assembly = self.when_swept(begin)?;
        let (id, of, name, kind) = (Some(info.id), info.tree, info.name.clone(), info.kind);
        let came = IncomingDump::read(assembly, stream)
            .and_then(|_| self.made(VolumeCall::Clone { id, of, name, kind, replace: true }));
        let removed = self.change(VolumeCall::Remove { id: info.tree });
        came.and(removed).map(drop)
    }

    /// The replica becomes the read-write volume, since the former one is lost. Its own number is
    /// no volume's then.
    pub(super) fn convert_replica(&self, partition: i32, volume: u32) -> Result<(), Refusal> {
        let partition = self.partition(partition)?.no;
        let info = match self.services.volume(VolumeId(volume.into())) {
            Ok(info) if info.partition == partition => info,
            Ok(_) | Err(Fault::NoVolume) => return Err(Refusal::NO_DEVICE),
            Err(fault) => return Err(fault.into()),
        };
        if info.kind != VolumeKind::ReadOnly {
            return Err(Refusal::CROSS_DEVICE);
        }
        let flags = transaction_flag::OFFLINE;
        let transactions = &self.service.transactions;
        let transaction = transactions.begin(self.now(), info.id, partition, flags)?;
        let converted = self.convert(&info);
        self.enter(transaction, "ConvertROtoRWvolume")?.end();
        converted
    }

    fn convert(&self, info: &VolumeInfo) -> Result<(), Refusal> {
        let take_over =
            VolumeCall::TakeOver { copy: info.id, name: base_name(&info.name)?, above: 0 };
        // The read-write volume is there.
        let head = self.made_when_swept(&take_over).map_err(|refusal| match refusal {
            Refusal::IO => Refusal::CROSS_DEVICE,
            refusal => refusal,
        })?;
        self.change(VolumeCall::Remove { id: info.id })?;
        self.change(VolumeCall::Serve { id: head }).map(drop)
    }
}
