//! Volumes at their places, and the clones that operations make for themselves: these show a state
//! of a volume while clients go on with it.
//!
//! Model: a clone has a name that tells the operation, so that a repeated one finds it. It is
//! marked to be removed, so a server that restarts meanwhile may do that by itself.

use afs3::volumes::{VolserStatus, VolumesAnswer, VolumesCall, transaction_flag, volume_flag};
use types::{Name, VolumeId};

use super::is_afs;
use super::transactions::AfsTransaction;
use super::volume_server::{VolumeServer, is_missing};
use crate::own_volumes::{have, remove_at};
use crate::{Job, VosError};

/// The flags of a new or a passing volume: out of service, and gone if its maker goes.
pub(super) const PASSING: i32 = volume_flag::DELETE_ON_SALVAGE | volume_flag::OUT_OF_SERVICE;

/// A volume at a place.
#[derive(Clone, Copy)]
pub(super) struct AfsPlace<'s> {
    pub at: VolumeServer<'s>,
    pub partition: i32,
    pub volume: u32,
}

impl<'s> AfsPlace<'s> {
    /// Opens a transaction on it.
    pub(super) fn hold(&self, flags: i32) -> Result<AfsTransaction<'s>, VosError> {
        AfsTransaction::begin(self.at, self.volume, self.partition, flags)
    }

    /// Removes it; one that is missing is no error.
    pub(super) fn remove(&self) -> Result<(), VosError> {
        match self.hold(transaction_flag::OFFLINE) {
            Ok(transaction) => {
                transaction.set_flags(PASSING)?;
                transaction.delete()?;
                transaction.end()
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Brings it into service, or takes it out.
    pub(super) fn set_service(&self, flags: i32) -> Result<(), VosError> {
        let transaction = self.hold(transaction_flag::OFFLINE)?;
        transaction.set_flags(flags)?;
        transaction.end()
    }

    /// Does something with a clone of it, in a transaction on the clone, which goes afterwards.
    ///
    /// # Errors
    /// Those of the servers and of `act`.
    pub(super) fn with_clone<T>(
        &self,
        job: &Job<'_>,
        name: &[u8],
        kind: i32,
        act: impl FnOnce(&AfsTransaction<'_>, &VolserStatus) -> Result<T, VosError>,
    ) -> Result<T, VosError> {
        let number = job.servers.db().take_numbers(VolumeId(0), 1)?;
        let clone = AfsPlace { volume: super::number(number)?, ..*self };
        let what = format!("{}: clone its current state", self.at.name());
        job.step(what, || {
            let held = self.hold(transaction_flag::BUSY)?;
            held.clone_as(kind, name, clone.volume)?;
            held.end()
        })?;
        let held = clone.hold(transaction_flag::OFFLINE)?;
        held.set_flags(PASSING)?;
        let done = held.status().and_then(|status| act(&held, &status));
        let removed = held.delete().and_then(|()| held.end());
        let done = done?;
        removed?;
        Ok(done)
    }

    /// Removes a clone that a leader left that ended. `is_held`: its transaction may be open still.
    ///
    /// # Errors
    /// Those of the server.
    pub(super) fn remove_clone(
        &self,
        job: &Job<'_>,
        name: &[u8],
        is_held: bool,
    ) -> Result<(), VosError> {
        if is_held {
            self.remove_held_clone(name)?;
        }
        if !is_afs(job.servers, self.at.server)? {
            let called = Name::new(name).map_err(|error| VosError::Unfit(error.to_string()))?;
            return match have(job.servers, self.at.server, &called)? {
                Some(left) => remove_at(job, self.at.server, left.id),
                None => Ok(()),
            };
        }
        // Names of its volumes are not unique, so only an operation that goes on has to look.
        if is_held {
            for left in self.at.list(self.partition)? {
                if left.name.text() == name && left.parent == self.volume {
                    AfsPlace { volume: left.volume, ..*self }.remove()?;
                }
            }
        }
        Ok(())
    }

    /// A volume in a transaction is listed without its name; the transaction tells it.
    fn remove_held_clone(&self, name: &[u8]) -> Result<(), VosError> {
        for open in self.at.transactions()? {
            let transaction = open.transaction;
            match self.at.ask(&VolumesCall::GetName { transaction }) {
                Ok(VolumesAnswer::GetName { name: found }) if found.as_bytes() == name => {
                    // It may have ended since.
                    let _ = self.at.ask(&VolumesCall::DeleteVolume { transaction });
                    let _ = self.at.end_transaction(transaction);
                }
                // Another's, or it has ended.
                Ok(_) | Err(VosError::AfsRefused { .. } | VosError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
