//! The table: who may make which call. One row for every request of every service; the matches have no default arm, so a request without a row does
//! not build.
//!
//! A row says what somebody has to be before anything else of the call is looked at. What a row leaves open (*file*, *record*) is decided where the file or
//! the record is: by the access model of the volume, by owner and flags of the principal.

use types::{AuthCall, Call, CellCall, Fid, GuardCall, Name, PartitionNo, PtsCall, VolumeCall, VolumeId};

/// Who may make a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Everybody.
    Anybody,
    /// Everybody who showed who he is, however.
    Proved,
    /// The access model of the file's volume decides.
    File,
    /// Owner and flags of the user or group decide ([`crate::perform`]).
    Record,
    /// An administrator, or who administers all of these places; of no place: who administers anything.
    Delegated(Vec<AdminScope>),
    /// An administrator.
    Administrator,
    /// An administrator; or a server whose key is not listed, to enter it ([`crate::may_enrol`]).
    Enrolment,
    /// A server of the cell.
    Server,
}

/// What somebody may administer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminScope {
    /// A volume of this server, by its name, or the partition that it is on.
    Volume(VolumeId),
    /// A volume of the cell, by the name of its group.
    Group(VolumeId),
    /// A volume that gets this name.
    Named(Name),
    /// A partition of this server; `None`: any.
    Partition(Option<PartitionNo>),
    /// This server.
    Server,
}

/// Whether somebody may.
pub struct AdminStanding<'a> {
    /// He showed who he is.
    pub proved: bool,
    /// The superuser of a trusted connection, or a server by its certificate.
    pub server: bool,
    /// A certificate of the cell's own authority for a server, whose key is not listed.
    pub enrolling: bool,
    /// In `system:administrators`.
    pub administrator: bool,
    /// He administers a place; `None`: any place at all.
    pub covers: &'a dyn Fn(Option<&AdminScope>) -> bool,
}

impl Row {
    /// Whether who stands so may make the call, as far as the table says.
    pub fn allows(&self, standing: &AdminStanding<'_>) -> bool {
        let administrator = standing.administrator || standing.server;
        match self {
            Row::Anybody | Row::File | Row::Record => true,
            Row::Proved => standing.proved || administrator,
            Row::Delegated(places) if places.is_empty() => administrator || (standing.covers)(None),
            Row::Delegated(places) => administrator || places.iter().all(|place| (standing.covers)(Some(place))),
            Row::Administrator => administrator,
            Row::Enrolment => administrator || standing.enrolling,
            Row::Server => standing.server,
        }
    }

    /// Whether nobody needs to look at who asks.
    pub fn is_open(&self) -> bool {
        matches!(self, Row::Anybody | Row::File | Row::Record)
    }
}

/// The row of a call.
pub fn row(call: &Call) -> Row {
    match call {
        Call::Root { .. }
        | Call::Lookup { .. }
        | Call::ReadDir { .. }
        | Call::Make { .. }
        | Call::MakeUnnamed { .. }
        | Call::Link { .. }
        | Call::Remove { .. }
        | Call::Rename { .. }
        | Call::ReadLink { .. }
        | Call::GetStatus { .. }
        | Call::SetStatus { .. }
        | Call::XattrGet { .. }
        | Call::XattrSet { .. }
        | Call::XattrList { .. }
        | Call::XattrRemove { .. }
        | Call::Read { .. }
        | Call::ReadPacked { .. }
        | Call::Write { .. }
        | Call::Allocate { .. }
        | Call::Seek { .. }
        | Call::Commit { .. }
        | Call::CommitVolume { .. }
        | Call::OpenBody { .. }
        | Call::LendBody { .. }
        | Call::SettleBody { .. }
        | Call::LendBlank { .. }
        | Call::AdoptBody { .. }
        | Call::ReadSums { .. }
        | Call::Lock { .. }
        | Call::Unlock { .. }
        | Call::TestLock { .. }
        | Call::GetAcl { .. }
        | Call::SetAcl { .. }
        | Call::Rights { .. }
        | Call::Delegate { .. }
        | Call::Delegated { .. } => Row::File,
        // What a session itself has.
        Call::Hold { .. } | Call::Unhold { .. } | Call::ReclaimDone | Call::Return { .. } => Row::Anybody,
        Call::VolumeStatus { .. } => Row::Anybody,
        Call::SetQuota { fid, .. } => Row::Delegated(vec![volume_of(*fid)]),
        // Who shows nothing hears what the cell is called.
        Call::ServerReport => Row::Anybody,
        Call::Scrub { start: false } => Row::Proved,
        Call::Scrub { start: true } => Row::Delegated(vec![AdminScope::Server]),
        Call::Volume(call) => row_of_volume(call),
        Call::Cell(call) => row_of_cell(call),
        Call::Pts { on_behalf: Some(_), .. } => Row::Server,
        Call::Pts { on_behalf: None, call } => row_of_pts(call),
        Call::Auth { behalf: Some(_), .. } => Row::Server,
        Call::Auth { behalf: None, call } => row_of_auth(call),
        Call::Guard { behalf: Some(_), .. } => Row::Server,
        Call::Guard { behalf: None, call } => row_of_guard(call),
    }
}

fn volume_of(fid: Fid) -> AdminScope {
    AdminScope::Volume(fid.volume)
}

fn row_of_volume(call: &VolumeCall) -> Row {
    match call {
        VolumeCall::List { .. } | VolumeCall::Examine { .. } | VolumeCall::Partitions => Row::Anybody,
        // The number is the cell's to give, so the cell may know whose it is.
        VolumeCall::Create { id, partition, name, .. } => {
            let places = [AdminScope::Named(name.clone()), AdminScope::Partition(*partition)];
            Row::Delegated(id.map(AdminScope::Group).into_iter().chain(places).collect())
        }
        VolumeCall::Remove { id } | VolumeCall::SetFields { id, .. } => Row::Delegated(vec![AdminScope::Volume(*id)]),
        VolumeCall::Rename { id, name } => {
            Row::Delegated(vec![AdminScope::Volume(*id), AdminScope::Named(name.clone())])
        }
        VolumeCall::Clone { of, name, .. } => {
            Row::Delegated(vec![AdminScope::Volume(*of), AdminScope::Named(name.clone())])
        }
        // Streams go and come without a look at anybody's rights.
        VolumeCall::Changes { id, .. } => Row::Delegated(vec![AdminScope::Volume(*id)]),
        VolumeCall::Hold { id, .. } | VolumeCall::Serve { id } => Row::Delegated(vec![AdminScope::Volume(*id)]),
        VolumeCall::Apply { partition, .. } | VolumeCall::Finish { partition, .. } => {
            Row::Delegated(vec![AdminScope::Partition(Some(*partition)), AdminScope::Server])
        }
        VolumeCall::Beside { id, partition, .. } => {
            Row::Delegated(vec![AdminScope::Volume(*id), AdminScope::Partition(Some(*partition))])
        }
        // Whose what comes is at the other server, is asked when that has said what it is called.
        VolumeCall::Pull(pull) => Row::Delegated(vec![AdminScope::Server, AdminScope::Group(pull.tree)]),
        VolumeCall::Tasks | VolumeCall::Incoming { .. } => Row::Delegated(vec![AdminScope::Server]),
    }
}

fn row_of_cell(call: &CellCall) -> Row {
    match call {
        CellCall::Group { .. }
        | CellCall::Groups { .. }
        | CellCall::Servers
        | CellCall::Changes { .. }
        | CellCall::Me => Row::Anybody,
        CellCall::PutGroup { group, .. } => {
            Row::Delegated(vec![AdminScope::Group(group.read_write), AdminScope::Named(group.name.clone())])
        }
        CellCall::RemoveGroup { read_write, .. } => Row::Delegated(vec![AdminScope::Group(*read_write)]),
        CellCall::TakeNumbers { .. } => Row::Delegated(Vec::new()),
        CellCall::PutServer { .. } => Row::Enrolment,
        CellCall::RemoveServer { .. } => Row::Administrator,
        CellCall::Principal { .. } | CellCall::Subdomain { .. } | CellCall::Watch { .. } => Row::Server,
    }
}

/// Who administers a part of the cell appoints nobody, and fences nobody off.
fn row_of_guard(call: &GuardCall) -> Row {
    match call {
        GuardCall::Fences { .. }
        | GuardCall::AddFence { .. }
        | GuardCall::RemoveFence { .. }
        | GuardCall::Mandates { .. }
        | GuardCall::AddMandate { .. }
        | GuardCall::RemoveMandate { .. }
        | GuardCall::WithdrawKeys { .. } => Row::Administrator,
    }
}

fn row_of_auth(call: &AuthCall) -> Row {
    match call {
        // It is what shows who one is.
        AuthCall::Password { .. } | AuthCall::Kerberos { .. } => Row::Anybody,
        AuthCall::Attest { .. } | AuthCall::Renew { .. } => Row::Proved,
        AuthCall::SetPassword { .. } => Row::Record,
    }
}

fn row_of_pts(call: &PtsCall) -> Row {
    match call {
        PtsCall::Names { .. } | PtsCall::Numbers { .. } | PtsCall::Max => Row::Anybody,
        PtsCall::Examine { .. } | PtsCall::Membership { .. } | PtsCall::Owned { .. } | PtsCall::Entries { .. } => {
            Row::Record
        }
        PtsCall::Create { .. } => Row::Proved,
        PtsCall::Delete { .. }
        | PtsCall::Rename { .. }
        | PtsCall::ChangeOwner { .. }
        | PtsCall::SetFields { .. }
        | PtsCall::Join { .. }
        | PtsCall::Leave { .. } => Row::Record,
        PtsCall::SetMax { .. } => Row::Administrator,
    }
}
