//! The front end for AFS-3: what its clients ask of a file server, answered by Rialto's services.
//!
//! Model: a driver has the sockets, proves who calls, and keeps a session for each foreign host.
//! It gives each call of a peer to a service here ([`FileService`]) with the caller's way to
//! Rialto's services ([`Services`]) and the stream of the call ([`CallStream`]). A service makes
//! one or more calls, one after the other, and returns the answer or a code of AFS. It translates
//! and decides nothing: who may do what, what is promised, and when a change may be answered is
//! decided where native clients' calls are decided.
//!
//! A foreign fid has 32 bits for each number. A volume's vnodes are numbered from 1, so they fit;
//! of the uniquifier the low half is shown. That is enough to tell files apart, since no vnode's
//! number is used twice, but it is no secret: so volumes are served only if access lists decide in
//! them, which are judged at each call (AF-1).

// Libraries report through their results.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod bos;
mod codes;
mod databases;
mod fids;
mod files;
mod locations;
mod partitions;
mod protection;
mod stream;
mod volumes;
mod vote;

pub use bos::BosService;
pub use codes::Refusal;
pub use databases::Databases;
pub use fids::foreign_fid;
pub use files::{FileHost, FileService};
pub use locations::{EntryForm, LocationService, PartitionNames, partition_of, server_uuid};
pub use protection::ProtectionService;
pub use stream::{CallStream, StreamBroken};
pub use volumes::VolumeService;
pub use vote::VoteService;

use std::net::SocketAddr;

use types::{Answer, Assembly, Call, Fault, Timestamp, VolumeId, VolumeInfo};

/// A call to another server.
pub trait PeerCall: CallStream {
    /// All is sent: the answer.
    ///
    /// # Errors
    /// The code with which the other server ended the call.
    fn finish(&mut self) -> Result<Vec<u8>, Refusal>;
}

/// The way of one foreign caller to Rialto's services.
pub trait Services {
    /// Makes a call as this caller, in the session of its host, and waits for the answer.
    ///
    /// # Errors
    /// The service's.
    fn ask(&self, call: Call) -> Result<Answer, Fault>;

    /// The same as the server's superuser, for what the front end must know whoever calls.
    ///
    /// # Errors
    /// The service's.
    fn ask_as_server(&self, call: Call) -> Result<Answer, Fault>;

    /// The same as a caller of this host that has proved nothing.
    ///
    /// # Errors
    /// The service's.
    fn ask_as_nobody(&self, call: Call) -> Result<Answer, Fault>;

    /// The volume with this number, if it is here.
    ///
    /// # Errors
    /// `NoVolume`, `Offline`; the medium's.
    fn volume(&self, id: VolumeId) -> Result<VolumeInfo, Fault>;

    /// Puts the contents of a volume together that is offline. Those of a read-only volume are put
    /// together in the read-write volume of its tree, which is made for that. The caller has shown
    /// that it may do everything with it.
    ///
    /// # Errors
    /// `NoVolume`, `ReadOnly`; `Busy`: the volume is in service, or what an earlier attempt left is
    /// being removed; `Exists`: the read-write volume is here.
    fn assemble(&self, id: VolumeId) -> Result<Box<dyn Assembly>, Fault>;

    /// Whether the volume does not serve clients of AFS.
    ///
    /// # Errors
    /// `NoVolume`.
    fn refuses_afs(&self, id: VolumeId) -> Result<bool, Fault>;

    /// Begins a call to another server of the cell, as this server; the request is the front of
    /// what is sent.
    ///
    /// # Errors
    /// There is no way to it.
    fn call_server(
        &self,
        to: SocketAddr,
        service: u16,
        request: &[u8],
    ) -> Result<Box<dyn PeerCall>, Refusal>;

    /// Waits for a tenth of a second.
    fn pause(&self);

    /// The wall clock.
    fn now(&self) -> Timestamp;

    /// The seconds for which promises are given.
    fn promised_seconds(&self) -> u32;
}
