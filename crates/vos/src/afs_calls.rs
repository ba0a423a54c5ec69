//! The calls of AFS's volume server protocol, as operations make them.

use afs3::volumes::{Destination, VolumesAnswer, VolumesCall};
use types::ServerId;

use crate::VosError;

/// Takes the next piece of a dump; the text says why it cannot be stored.
pub type TakePiece<'a> = dyn FnMut(&[u8]) -> Result<(), String> + 'a;
/// Returns the next piece of a dump; `None` at its end.
pub type NextPiece<'a> = dyn FnMut() -> Result<Option<Vec<u8>>, String> + 'a;

/// Volume servers by AFS's protocol: those of AFS, and Rialto's where `[afs]` is open.
pub trait AfsVolumeServers: Sync {
    /// Makes a call without a stream.
    ///
    /// # Errors
    /// `Away`, `Refused`, `AfsRefused`, `NoAfsKey`, `Odd`.
    fn ask(&self, server: ServerId, call: &VolumesCall) -> Result<VolumesAnswer, VosError>;

    /// Makes a call with which the server sends a dump.
    ///
    /// # Errors
    /// Those of [`AfsVolumeServers::ask`], and `Unfit` with what `take` says.
    fn dump(
        &self,
        server: ServerId,
        call: &VolumesCall,
        take: &mut TakePiece<'_>,
    ) -> Result<(), VosError>;

    /// Makes a call with which a dump is sent to the server.
    ///
    /// # Errors
    /// Those of [`AfsVolumeServers::ask`], and `Unfit` with what `next` says.
    fn restore(
        &self,
        server: ServerId,
        call: &VolumesCall,
        next: &mut NextPiece<'_>,
    ) -> Result<(), VosError>;

    /// Where other volume servers reach this one.
    ///
    /// # Errors
    /// `Unfit`: it has no IPv4 address.
    fn destination(&self, server: ServerId) -> Result<Destination, VosError>;
}
