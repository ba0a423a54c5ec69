//! The table: who may make which call. One row for every request of every service; the matches have
//! no default arm, so a request without a row does not build.
//!
//! A row says what somebody has to be before anything else of the call is looked at. What a row
//! leaves open (*file*, *record*) is decided where the file or the record is: by the access model
//! of the volume, by owner and flags of the principal.

use types::{Call, CallAccess, CellCall, Name, PartitionNo, VolumeCall, VolumeId};

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
    /// An administrator, or who administers all of these places; of no place: who administers
    /// anything.
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
            Row::Delegated(places) => {
                administrator || places.iter().all(|place| (standing.covers)(Some(place)))
            }
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

/// The row of a call: the rule that the call table names, with what the arguments are about.
pub fn row(call: &Call) -> Row {
    if call.is_on_behalf() {
        return Row::Server;
    }
    match call.traits().access {
        CallAccess::Anybody => Row::Anybody,
        CallAccess::File => Row::File,
        CallAccess::Proved => Row::Proved,
        CallAccess::Record => Row::Record,
        CallAccess::Admin => Row::Administrator,
        CallAccess::Enrolment => Row::Enrolment,
        CallAccess::Server => Row::Server,
        CallAccess::Scopes => match call {
            // How far a check is, any user may ask.
            Call::Scrub { start: false } => Row::Proved,
            // Without known scopes administrators alone may make the call.
            call => scopes(call).map_or(Row::Administrator, Row::Delegated),
        },
    }
}

/// What the caller must administer; `None`: the call has no scopes.
fn scopes(call: &Call) -> Option<Vec<AdminScope>> {
    match call {
        Call::SetQuota { fid, .. } => Some(vec![AdminScope::Volume(fid.volume)]),
        Call::Scrub { .. } => Some(vec![AdminScope::Server]),
        Call::Volume(call) => scopes_of_volume(call),
        Call::Cell(CellCall::PutGroup { group, .. }) => {
            Some(vec![AdminScope::Group(group.read_write), AdminScope::Named(group.name.clone())])
        }
        Call::Cell(CellCall::RemoveGroup { read_write, .. }) => {
            Some(vec![AdminScope::Group(*read_write)])
        }
        // Any scope at all.
        Call::Cell(CellCall::TakeNumbers { .. }) => Some(Vec::new()),
        _ => None,
    }
}

fn scopes_of_volume(call: &VolumeCall) -> Option<Vec<AdminScope>> {
    let scopes = match call {
        VolumeCall::List { .. } | VolumeCall::Examine { .. } | VolumeCall::Partitions => {
            return None;
        }
        // The cell gives the number, so the cell may know whose it is.
        VolumeCall::Create { id, partition, name, .. } => {
            let places = [AdminScope::Named(name.clone()), AdminScope::Partition(*partition)];
            id.map(AdminScope::Group).into_iter().chain(places).collect()
        }
        // A stream is read without a look at anybody's rights to files.
        VolumeCall::Remove { id }
        | VolumeCall::SetFields { id, .. }
        | VolumeCall::Changes { id, .. }
        | VolumeCall::Hold { id, .. }
        | VolumeCall::Serve { id } => vec![AdminScope::Volume(*id)],
        VolumeCall::Rename { id, name } | VolumeCall::Clone { of: id, name, .. } => {
            vec![AdminScope::Volume(*id), AdminScope::Named(name.clone())]
        }
        VolumeCall::Apply { partition, .. } | VolumeCall::Finish { partition, .. } => {
            vec![AdminScope::Partition(Some(*partition)), AdminScope::Server]
        }
        VolumeCall::Beside { id, partition, .. } => {
            vec![AdminScope::Volume(*id), AdminScope::Partition(Some(*partition))]
        }
        // The owner of what comes is asked for when the other server has told its name.
        VolumeCall::Pull(pull) => vec![AdminScope::Server, AdminScope::Group(pull.tree)],
        VolumeCall::Tasks | VolumeCall::Incoming { .. } => vec![AdminScope::Server],
    };
    Some(scopes)
}
